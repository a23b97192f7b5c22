// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* Counts the system calls and the heap allocations of two processes, each by thread. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

const volatile __u32 daemon = 0;
const volatile __u32 sampler = 0;
/* Where the code of the library that is sampled lies, in the process that loaded it. */
const volatile __u64 library_start = 0;
const volatile __u64 library_end = 0;

struct key {
	__u32 tid;
	/* The system call's number; for allocations, whether the library made it. */
	__u32 what;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct key);
	__type(value, __u64);
} system_calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct key);
	__type(value, __u64);
} allocations SEC(".maps");

static __always_inline void count(void *map, const struct key *key)
{
	__u64 one = 1, *counter = bpf_map_lookup_elem(map, key);

	/* A thread is on one CPU at a time, so nobody else counts at its key. */
	if (counter)
		*counter += 1;
	else
		bpf_map_update_elem(map, key, &one, BPF_ANY);
}

SEC("raw_tp/sys_enter")
int on_system_call(struct bpf_raw_tracepoint_args *context)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32;
	struct key key = { .tid = pid_tgid, .what = context->args[1] };

	if (tgid == daemon || tgid == sampler)
		count(&system_calls, &key);
	return 0;
}

SEC("uprobe")
int on_allocation(struct pt_regs *registers)
{
	struct key key = { .tid = bpf_get_current_pid_tgid() };
	__u64 caller = 0;

#if defined(__TARGET_ARCH_x86)
	bpf_probe_read_user(&caller, sizeof(caller), (void *)registers->sp);
#elif defined(__TARGET_ARCH_arm64)
	caller = registers->regs[30];
#endif
	key.what = caller >= library_start && caller < library_end;
	count(&allocations, &key);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
