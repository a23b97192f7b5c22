// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The maps that the bridge publishes; no programs. Needs no include directory but that of <gadget/...> and libbpf's own, which
 * libbpf-cargo brings: clang -Wall -Werror -I include -c gpu_maps.bpf.c
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define GPU_BRIDGE_WANT_ALL
#define GPU_BRIDGE_WANT_STATE
#include <gadget/gpu_bridge_maps.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";
