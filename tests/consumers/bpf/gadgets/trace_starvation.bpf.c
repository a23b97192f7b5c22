// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The shape of a tracer of starvation: a process that holds GPU memory waited for a CPU, or for something else, while its GPU had little
 * to do. It judges only by samples that are newer than any it has used before.
 */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <gadget/gpu_types.h>

#define GPU_BRIDGE_WANT_META
#define GPU_BRIDGE_WANT_DEVICE
#define GPU_BRIDGE_WANT_PER_PID
#include <gadget/gpu_bridge_maps.h>

const volatile __u64 min_gpu_memory_bytes = 1;
const volatile __u64 min_off_cpu_ns = 1000000;
const volatile __u32 starved_below_pct = 50;
const volatile __u64 stale_threshold_ms = 300;

struct off_cpu {
	__u64 since_boottime_ns;
	__u32 tgid;
	__u32 _pad;
};

struct starvation {
	__u64 off_cpu_ns;
	__u64 sampled_boottime_ns;
	__u32 tgid;
	__u32 device_sm_util_pct;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, struct off_cpu);
} waiting SEC(".maps");

/* The last starvation of each process. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct starvation);
} starved SEC(".maps");

__u64 newest_sample_boottime_ns = 0;

static __always_inline void leaves_cpu(__u64 now)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32, tid = pid_tgid;
	struct off_cpu off_cpu = { .since_boottime_ns = now, .tgid = tgid };

	if (gpu_pid_holder(tgid, min_gpu_memory_bytes))
		bpf_map_update_elem(&waiting, &tid, &off_cpu, BPF_ANY);
}

static __always_inline void enters_cpu(__u64 now, __u32 tid)
{
	struct off_cpu *off_cpu = bpf_map_lookup_elem(&waiting, &tid);
	struct gpu_pid_metrics_aggregated *process;
	struct gpu_device_metrics *device;
	struct starvation starvation = {};
	struct gpu_meta *meta;
	__u32 index;

	if (!off_cpu)
		return;
	starvation.off_cpu_ns = now - off_cpu->since_boottime_ns;
	starvation.tgid = off_cpu->tgid;
	bpf_map_delete_elem(&waiting, &tid);
	if (starvation.off_cpu_ns < min_off_cpu_ns)
		return;

	meta = gpu_meta_fresh(now, stale_threshold_ms);
	process = gpu_pid_holder(starvation.tgid, min_gpu_memory_bytes);
	if (!meta || !process || process->gpu_device_primary == GPU_DEVICE_PRIMARY_MULTI)
		return;
	index = process->gpu_device_primary;
	device = bpf_map_lookup_elem(&gpu_device, &index);
	if (!device || !device->timestamp_ns || device->sm_util_pct >= starved_below_pct)
		return;

	starvation.sampled_boottime_ns = device->timestamp_ns - meta->clock_offset_ns;
	starvation.device_sm_util_pct = device->sm_util_pct;
	/* A sample from the future would silence this program for as long as that future lasts. */
	if (starvation.sampled_boottime_ns < newest_sample_boottime_ns)
		return;
	newest_sample_boottime_ns = starvation.sampled_boottime_ns;
	bpf_map_update_elem(&starved, &starvation.tgid, &starvation, BPF_ANY);
}

SEC("tracepoint/sched/sched_switch")
int on_switch(struct trace_event_raw_sched_switch *ctx)
{
	__u64 now = bpf_ktime_get_boot_ns();

	leaves_cpu(now);
	enters_cpu(now, ctx->next_pid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
