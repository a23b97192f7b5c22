/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The kernel types that these programs read: what a vmlinux.h generated from a kernel's BTF would give them, without the other
 * hundred thousand lines, so that they build where no kernel BTF and no bpftool is at hand. Fields are found on the running kernel by
 * name (CO-RE), so the layouts here need not be the kernel's. A generated vmlinux.h works as well; a test compiles all programs with one.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

enum {
	false = 0,
	true = 1,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;
struct bpf_map;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key;
	void *value;
};

typedef struct {
	int counter;
} atomic_t;

struct mm_struct;

struct signal_struct {
	atomic_t live;
	struct mm_struct *oom_mm;
};

struct task_struct {
	__s32 pid;
	__s32 tgid;
	int exit_code;
	char comm[16];
	struct signal_struct *signal;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* Contexts of the kernel's ABI: fixed, not relocated. */
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#endif /* __VMLINUX_H__ */
