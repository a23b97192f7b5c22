// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * What the GPU was doing when a process called a function of a library, such as CUDA's cuLaunchKernel: utilization, and why the clocks were
 * held down. A uprobe; the function is chosen when it is attached.
 */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

#define GPU_BRIDGE_WANT_META
#define GPU_BRIDGE_WANT_DEVICE
#define GPU_BRIDGE_WANT_PER_PID
#include <gadget/gpu_bridge_maps.h>

const volatile __u64 stale_threshold_ms = 300;

/* src/launches.rs decodes it. */
struct launch {
	__u64 boottime_ns;
	__u64 gpu_memory_bytes;
	__u64 throttle_reasons; /* of the device; 0 when the process uses several */
	__u32 tgid;
	__u32 sm_util_pct; /* of the process */
	__u32 device_sm_util_pct;
	__u8 device; /* GPU_DEVICE_PRIMARY_MULTI: several */
	__u8 _pad[3];
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} launches SEC(".maps");

SEC("uprobe")
int on_launch(void *ctx)
{
	__u64 now = bpf_ktime_get_boot_ns();
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gpu_pid_metrics_aggregated *process = gpu_pid_holder(tgid, 0);
	struct gpu_device_metrics *device = 0;
	struct launch *launch;
	__u32 index;

	if (!process || !gpu_meta_fresh(now, stale_threshold_ms))
		return 0;
	index = process->gpu_device_primary;
	if (index != GPU_DEVICE_PRIMARY_MULTI)
		device = bpf_map_lookup_elem(&gpu_device, &index);

	launch = bpf_ringbuf_reserve(&launches, sizeof(*launch), 0);
	if (!launch)
		return 0;
	launch->boottime_ns = now;
	launch->gpu_memory_bytes = process->used_gpu_memory_total;
	launch->throttle_reasons = device ? device->throttle_reasons : 0;
	launch->tgid = tgid;
	launch->sm_util_pct = process->sm_util_pct_max;
	launch->device_sm_util_pct = device ? device->sm_util_pct : 0;
	launch->device = index;
	__builtin_memset(launch->_pad, 0, sizeof(launch->_pad));
	bpf_get_current_comm(launch->comm, sizeof(launch->comm));
	bpf_ringbuf_submit(launch, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
