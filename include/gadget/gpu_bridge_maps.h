/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * The pinned gpu_* maps, for a BPF program. Include <vmlinux.h> (or <linux/types.h>) and <bpf/bpf_helpers.h> first, and define which maps
 * are wanted:
 *
 *     #define GPU_BRIDGE_WANT_META
 *     #define GPU_BRIDGE_WANT_PER_PID
 *     #include <gadget/gpu_bridge_maps.h>
 *
 * GPU_BRIDGE_WANT_ALL declares the four maps of the contract. GPU_BRIDGE_WANT_STATE, which ALL does not include, declares the
 * bridge's own gpu_bridge_state. The maps are pinned by name: a loader with a pin root path reuses the bridge's, or creates them for
 * the bridge to adopt. The file may be included again with other maps wanted; each map is declared once.
 */

#include "gpu_types.h"

#ifndef GADGET_GPU_BRIDGE_MAPS_H
#define GADGET_GPU_BRIDGE_MAPS_H
/* linux/bpf.h and vmlinux.h have these as enumerators, which the preprocessor cannot ask for: numbers, fixed by the kernel's ABI. */
#define GPU_BRIDGE_MAP_TYPE_ARRAY 2    /* BPF_MAP_TYPE_ARRAY */
#define GPU_BRIDGE_MAP_TYPE_LRU_HASH 9 /* BPF_MAP_TYPE_LRU_HASH */
#define GPU_BRIDGE_F_MMAPABLE 1024     /* BPF_F_MMAPABLE */
#endif

#if (defined(GPU_BRIDGE_WANT_META) || defined(GPU_BRIDGE_WANT_ALL)) && !defined(GADGET_GPU_BRIDGE_META)
#define GADGET_GPU_BRIDGE_META
struct {
	__uint(type, GPU_BRIDGE_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gpu_meta);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} gpu_meta SEC(".maps");

/*
 * The meta record when the bridge's data is at most stale_threshold_ms old at now_boot_ns (bpf_ktime_get_boot_ns()), else NULL. Two or three
 * poll intervals are a good threshold.
 */
static __always_inline struct gpu_meta *gpu_meta_fresh(__u64 now_boot_ns, __u64 stale_threshold_ms)
{
	__u32 zero = 0;
	struct gpu_meta *meta = bpf_map_lookup_elem(&gpu_meta, &zero);
	__u64 stamp, apart, limit;

	if (!meta || meta->schema_version != GPU_SCHEMA_VERSION)
		return 0;
	/* Read once: the bridge may be writing. 0 is a map that nobody has filled yet. */
	stamp = *(volatile __u64 *)&meta->last_update_boottime_ns;
	if (!stamp)
		return 0;
	/*
	 * A round that was published after the caller read its clock bears a later stamp: fresh, not 584 years old. A stamp further ahead
	 * than the threshold is no such round: another clock wrote it.
	 */
	apart = now_boot_ns > stamp ? now_boot_ns - stamp : stamp - now_boot_ns;
	limit = stale_threshold_ms > ~0ULL / 1000000 ? ~0ULL : stale_threshold_ms * 1000000;
	return apart > limit ? 0 : meta;
}
#endif

#if (defined(GPU_BRIDGE_WANT_DEVICE) || defined(GPU_BRIDGE_WANT_ALL)) && !defined(GADGET_GPU_BRIDGE_DEVICE)
#define GADGET_GPU_BRIDGE_DEVICE
struct {
	__uint(type, GPU_BRIDGE_MAP_TYPE_ARRAY);
	__uint(max_entries, GPU_MAX_DEVICES);
	__type(key, __u32);
	__type(value, struct gpu_device_metrics);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} gpu_device SEC(".maps");
#endif

#if (defined(GPU_BRIDGE_WANT_PER_PID) || defined(GPU_BRIDGE_WANT_ALL)) && !defined(GADGET_GPU_BRIDGE_PER_PID)
#define GADGET_GPU_BRIDGE_PER_PID
struct {
	__uint(type, GPU_BRIDGE_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GPU_BRIDGE_PID_ENTRIES);
	__type(key, __u32);
	__type(value, struct gpu_pid_metrics_aggregated);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} gpu_per_pid SEC(".maps");

/* The record of process tgid when it holds at least min_gpu_mem_bytes of GPU memory over all devices, else NULL. */
static __always_inline struct gpu_pid_metrics_aggregated *gpu_pid_holder(__u32 tgid, __u64 min_gpu_mem_bytes)
{
	struct gpu_pid_metrics_aggregated *process = bpf_map_lookup_elem(&gpu_per_pid, &tgid);

	if (!process || process->used_gpu_memory_total < min_gpu_mem_bytes)
		return 0;
	return process;
}
#endif

#if (defined(GPU_BRIDGE_WANT_PER_PID_PER_DEVICE) || defined(GPU_BRIDGE_WANT_ALL)) && !defined(GADGET_GPU_BRIDGE_PER_PID_PER_DEVICE)
#define GADGET_GPU_BRIDGE_PER_PID_PER_DEVICE
struct {
	__uint(type, GPU_BRIDGE_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GPU_BRIDGE_PID_ENTRIES);
	__type(key, __u64);
	__type(value, struct gpu_pid_metrics);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} gpu_per_pid_per_device SEC(".maps");
#endif

#if defined(GPU_BRIDGE_WANT_STATE) && !defined(GADGET_GPU_BRIDGE_STATE)
#define GADGET_GPU_BRIDGE_STATE
struct {
	__uint(type, GPU_BRIDGE_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GPU_BRIDGE_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gpu_bridge_state);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} gpu_bridge_state SEC(".maps");
#endif
