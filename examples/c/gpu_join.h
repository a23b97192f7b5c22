/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/* What gpu_join.bpf.c sends and gpu_join.c prints. */
#ifndef GPU_JOIN_H
#define GPU_JOIN_H

#define GPU_JOIN_NO_SAMPLE (~0ULL)

struct gpu_join {
	__u64 gpu_memory_bytes;
	__u64 sample_age_ns; /* or GPU_JOIN_NO_SAMPLE */
	__u32 tgid;
	__u32 sm_util_pct;
	char comm[16];
};

#endif /* GPU_JOIN_H */
