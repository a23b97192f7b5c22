// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What the GPU was doing for a process when the process left the CPU or made a system call. Events come only from processes that
 * gpu_per_pid knows, and only while gpu_meta is fresh. Raw tracepoints: they need no tracefs.
 */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

#define GPU_BRIDGE_WANT_ALL
#include <gadget/gpu_bridge_maps.h>

#include "gpu_events.h"

const volatile __u64 stale_threshold_ms = 300;
/* The one system call to report; its number differs between architectures. */
const volatile __s64 system_call = -1;

/* Events lost because nobody emptied the ring buffer in time. */
__u64 dropped = 0;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* Utilization of the device, or of the busiest one when the process uses several. */
static __always_inline __u32 device_utilization(__u32 tgid, const struct gpu_pid_metrics_aggregated *process)
{
	struct gpu_device_metrics *device;
	__u32 index, highest = 0;

	if (process->gpu_device_primary != GPU_DEVICE_PRIMARY_MULTI) {
		index = process->gpu_device_primary;
		device = bpf_map_lookup_elem(&gpu_device, &index);
		return device && device->timestamp_ns ? device->sm_util_pct : 0;
	}
	for (index = 0; index < GPU_MAX_DEVICES; index++) {
		__u64 key = GPU_PID_DEVICE_KEY(tgid, index);
		__u32 slot = index;

		if (!bpf_map_lookup_elem(&gpu_per_pid_per_device, &key))
			continue;
		device = bpf_map_lookup_elem(&gpu_device, &slot);
		if (device && device->timestamp_ns && device->sm_util_pct > highest)
			highest = device->sm_util_pct;
	}
	return highest;
}

static __always_inline __u64 sample_age(__u64 now, __u64 timestamp_ns, const struct gpu_meta *meta)
{
	__u64 sampled_boottime_ns = timestamp_ns - meta->clock_offset_ns;

	if (!timestamp_ns)
		return GPU_EVENT_NO_SAMPLE;
	/* A sample may arrive between our clock read and the lookup. */
	return now > sampled_boottime_ns ? now - sampled_boottime_ns : 0;
}

static __always_inline int emit(__u8 cause)
{
	__u64 now = bpf_ktime_get_boot_ns();
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32;
	struct gpu_pid_metrics_aggregated *process;
	struct gpu_meta *meta;
	struct gpu_event *event;

	/* The common case first: most processes use no GPU. */
	process = gpu_pid_holder(tgid, 0);
	if (!process)
		return 0;
	meta = gpu_meta_fresh(now, stale_threshold_ms);
	if (!meta)
		return 0;

	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&dropped, 1);
		return 0;
	}
	event->boottime_ns = now;
	event->gpu_memory_bytes = process->used_gpu_memory_total;
	event->sample_age_ns = sample_age(now, process->timestamp_ns, meta);
	event->tgid = tgid;
	event->tid = pid_tgid;
	event->sm_util_pct = process->sm_util_pct_max;
	event->mem_util_pct = process->mem_util_pct_max;
	event->device_sm_util_pct = device_utilization(tgid, process);
	event->device = process->gpu_device_primary;
	event->device_count = process->device_count;
	event->cause = cause;
	event->_pad = 0;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Runs before the switch: the current task is the one that leaves. */
SEC("raw_tp/sched_switch")
int on_context_switch(void *ctx)
{
	return emit(GPU_EVENT_CONTEXT_SWITCH);
}

/* Arguments: registers, number. */
SEC("raw_tp/sys_enter")
int on_system_call(struct bpf_raw_tracepoint_args *ctx)
{
	if ((__s64)ctx->args[1] != system_call)
		return 0;
	return emit(GPU_EVENT_SYSTEM_CALL);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
