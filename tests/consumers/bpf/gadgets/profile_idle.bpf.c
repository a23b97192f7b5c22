// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The shape of a CPU profiler: counts the samples of processes that compute while all their GPUs idle. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>
#include <gadget/gpu_types.h>

#define GPU_BRIDGE_WANT_META
#define GPU_BRIDGE_WANT_DEVICE
#define GPU_BRIDGE_WANT_PER_PID
#define GPU_BRIDGE_WANT_PER_PID_PER_DEVICE
#include <gadget/gpu_bridge_maps.h>

const volatile __u32 idle_below_pct = 10;
const volatile __u64 stale_threshold_ms = 300;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} idle_samples SEC(".maps");

static __always_inline bool device_idle(__u32 index)
{
	struct gpu_device_metrics *device = bpf_map_lookup_elem(&gpu_device, &index);

	/* An empty slot says nothing. */
	return device && device->timestamp_ns && device->sm_util_pct < idle_below_pct;
}

static __always_inline bool devices_idle(__u32 tgid, const struct gpu_pid_metrics_aggregated *process)
{
	__u32 index;

	if (process->gpu_device_primary != GPU_DEVICE_PRIMARY_MULTI)
		return device_idle(process->gpu_device_primary);
	for (index = 0; index < GPU_MAX_DEVICES; index++) {
		__u64 key = GPU_PID_DEVICE_KEY(tgid, index);

		if (bpf_map_lookup_elem(&gpu_per_pid_per_device, &key) && !device_idle(index))
			return false;
	}
	return true;
}

SEC("perf_event")
int on_sample(struct bpf_perf_event_data *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gpu_pid_metrics_aggregated *process = gpu_pid_holder(tgid, 1);
	__u64 one = 1, *count;

	if (!process || !gpu_meta_fresh(bpf_ktime_get_boot_ns(), stale_threshold_ms) || !devices_idle(tgid, process))
		return 0;
	count = bpf_map_lookup_elem(&idle_samples, &tgid);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&idle_samples, &tgid, &one, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
