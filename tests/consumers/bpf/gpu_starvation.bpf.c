// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Threads that keep a CPU busy while the GPU of their process has had nothing to do for longer than a threshold: the GPU starves, most
 * often for want of input. Idle time counts from the sample in which the GPU was first seen idle, on the kernel's clock.
 */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define GPU_BRIDGE_WANT_META
#define GPU_BRIDGE_WANT_DEVICE
#define GPU_BRIDGE_WANT_PER_PID
#include <gadget/gpu_bridge_maps.h>

const volatile __u64 stale_threshold_ms = 300;
const volatile __u64 min_on_cpu_ns = 1000000;
const volatile __u64 min_idle_ns = 1000000000;
/* A GPU below this is idle. */
const volatile __u32 idle_below_pct = 5;

/* src/starvation.rs decodes it. */
struct starvation {
	__u64 boottime_ns;
	__u64 on_cpu_ns;
	__u64 idle_ns;
	__u64 gpu_memory_bytes;
	__u32 tgid;
	__u32 tid;
	__u32 device;
	__u32 device_sm_util_pct;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} starvations SEC(".maps");

/* When the thread came onto its CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} on_cpu_since SEC(".maps");

/* BOOTTIME of the first idle sample of each device, 0 while it is busy. */
__u64 idle_since[GPU_MAX_DEVICES] = {};

/* How long the device has been idle; 0 when it is not, or nothing is known of it. */
static __always_inline __u64 idle_time(__u32 index, const struct gpu_device_metrics *device, const struct gpu_meta *meta, __u64 now)
{
	__u64 sampled = device->timestamp_ns - meta->clock_offset_ns;

	if (index >= GPU_MAX_DEVICES)
		return 0;
	if (device->sm_util_pct >= idle_below_pct) {
		idle_since[index] = 0;
		return 0;
	}
	if (!idle_since[index])
		idle_since[index] = sampled;
	/* A sample may have been taken after our clock was read. */
	return now > idle_since[index] ? now - idle_since[index] : 0;
}

static __always_inline void leaves_cpu(__u64 now)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32, tid = pid_tgid, index;
	struct gpu_pid_metrics_aggregated *process = gpu_pid_holder(tgid, 1);
	struct gpu_device_metrics *device;
	struct starvation *event;
	struct gpu_meta *meta;
	__u64 *since, on_cpu, idle;

	if (!process)
		return;
	since = bpf_map_lookup_elem(&on_cpu_since, &tid);
	on_cpu = since && now > *since ? now - *since : 0;

	/* A process on several devices is not judged: which of them it feeds is not known. */
	index = process->gpu_device_primary;
	meta = gpu_meta_fresh(now, stale_threshold_ms);
	if (!meta || index >= GPU_MAX_DEVICES)
		return;
	device = bpf_map_lookup_elem(&gpu_device, &index);
	if (!device || !device->timestamp_ns)
		return;
	idle = idle_time(index, device, meta, now);
	if (on_cpu < min_on_cpu_ns || idle < min_idle_ns)
		return;

	event = bpf_ringbuf_reserve(&starvations, sizeof(*event), 0);
	if (!event)
		return;
	event->boottime_ns = now;
	event->on_cpu_ns = on_cpu;
	event->idle_ns = idle;
	event->gpu_memory_bytes = process->used_gpu_memory_total;
	event->tgid = tgid;
	event->tid = tid;
	event->device = index;
	event->device_sm_util_pct = device->sm_util_pct;
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
}

/* Arguments: preempt, the task that leaves, the one that comes. */
SEC("raw_tp/sched_switch")
int on_switch(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *next = (struct task_struct *)ctx->args[2];
	__u32 tid = BPF_CORE_READ(next, pid);
	__u64 now = bpf_ktime_get_boot_ns();

	leaves_cpu(now);
	if (gpu_pid_holder(BPF_CORE_READ(next, tgid), 1))
		bpf_map_update_elem(&on_cpu_since, &tid, &now, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
