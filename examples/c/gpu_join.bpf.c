// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What the GPU was doing for a process when one of its threads left the CPU. Raw tracepoints need no tracefs. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define GPU_BRIDGE_WANT_META
#define GPU_BRIDGE_WANT_PER_PID
#include <gadget/gpu_bridge_maps.h>

#include "gpu_join.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

SEC("raw_tp/sched_switch")
int on_switch(void *ctx)
{
	__u64 now = bpf_ktime_get_boot_ns(), sampled;
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gpu_pid_metrics_aggregated *process = gpu_pid_holder(tgid, 1);
	struct gpu_meta *meta;
	struct gpu_join *event;

	/* The common case first: most processes use no GPU. */
	if (!process)
		return 0;
	meta = gpu_meta_fresh(now, 300);
	if (!meta)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return 0;
	/* Samples are stamped by the wall clock, the kernel's events by the boot clock. */
	sampled = process->timestamp_ns - meta->clock_offset_ns;
	event->sample_age_ns = !process->timestamp_ns ? GPU_JOIN_NO_SAMPLE : now > sampled ? now - sampled : 0;
	event->gpu_memory_bytes = process->used_gpu_memory_total;
	event->tgid = tgid;
	event->sm_util_pct = process->sm_util_pct_max;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
