// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * How much GPU memory a process held when it ended, and how it ended: by itself, by a signal, or because the kernel ran out of memory. The
 * entry is still in the map at that moment; the bridge removes it in its next round.
 */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define GPU_BRIDGE_WANT_META
#define GPU_BRIDGE_WANT_PER_PID
#include <gadget/gpu_bridge_maps.h>

const volatile __u64 stale_threshold_ms = 300;
const volatile __u64 min_gpu_memory_bytes = 1;

/* src/exits.rs decodes it. */
struct gpu_exit {
	__u64 boottime_ns;
	__u64 gpu_memory_bytes;
	__u32 tgid;
	__u32 exit_code; /* as wait(2) has it: status << 8, or the signal */
	__u8 device;     /* GPU_DEVICE_PRIMARY_MULTI: several */
	__u8 oom;        /* chosen by the kernel's OOM killer */
	__u8 _pad[6];
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} exits SEC(".maps");

/* Runs in each thread that ends. */
SEC("raw_tp/sched_process_exit")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	__u64 now = bpf_ktime_get_boot_ns();
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gpu_pid_metrics_aggregated *process;
	struct gpu_exit *event;

	/* Most processes use no GPU, and a process has ended when its last thread has. */
	process = gpu_pid_holder(tgid, min_gpu_memory_bytes);
	if (!process || BPF_CORE_READ(task, signal, live.counter) != 0 || !gpu_meta_fresh(now, stale_threshold_ms))
		return 0;

	event = bpf_ringbuf_reserve(&exits, sizeof(*event), 0);
	if (!event)
		return 0;
	event->boottime_ns = now;
	event->gpu_memory_bytes = process->used_gpu_memory_total;
	event->tgid = tgid;
	event->exit_code = BPF_CORE_READ(task, exit_code);
	event->device = process->gpu_device_primary;
	event->oom = BPF_CORE_READ(task, signal, oom_mm) != 0;
	__builtin_memset(event->_pad, 0, sizeof(event->_pad));
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
