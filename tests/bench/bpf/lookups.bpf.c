// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What a consumer does at an event, to be timed with BPF_PROG_TEST_RUN: the freshness gate, then the process. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

#define GPU_BRIDGE_WANT_META
#define GPU_BRIDGE_WANT_PER_PID
#include <gadget/gpu_bridge_maps.h>

const volatile __u32 first_pid = 0;
const volatile __u32 pids = 1;
const volatile __u64 stale_threshold_ms = 300;

__u32 next = 0;
__u64 found = 0;

static __always_inline __u32 next_pid(void)
{
	__u32 turn = next + 1;

	next = turn < pids ? turn : 0;
	return first_pid + next;
}

static __always_inline int look_up(__u64 threshold_ms, __u32 pid)
{
	if (gpu_meta_fresh(bpf_ktime_get_boot_ns(), threshold_ms) && gpu_pid_holder(pid, 1))
		found++;
	return 0;
}

/* What the others cost without the lookup. */
SEC("tc")
int baseline(struct __sk_buff *packet)
{
	found += next_pid() == ~0U;
	return 0;
}

SEC("tc")
int hit(struct __sk_buff *packet)
{
	return look_up(stale_threshold_ms, next_pid());
}

/* PIDs that no process has. */
SEC("tc")
int miss(struct __sk_buff *packet)
{
	return look_up(stale_threshold_ms, next_pid() | 0x40000000);
}

/* Every record is older than that. */
SEC("tc")
int stale_gate(struct __sk_buff *packet)
{
	return look_up(0, next_pid());
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
