// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The shape of a gadget without programs: userspace walks the maps and finds the record types through BTF. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <gadget/gpu_types.h>

#define GPU_BRIDGE_WANT_ALL
#include <gadget/gpu_bridge_maps.h>

/* Names of the tables and of the maps behind them, for the framework to find. */
const void *table_devices___gpu_device __attribute__((unused));
const void *table_processes___gpu_per_pid __attribute__((unused));
const void *table_process_devices___gpu_per_pid_per_device __attribute__((unused));

char LICENSE[] SEC("license") = "GPL";
