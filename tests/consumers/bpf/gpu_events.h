/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The record that gpu_events sends through its ring buffer; src/events.rs decodes it. */
#ifndef CONSUMERS_GPU_EVENTS_H
#define CONSUMERS_GPU_EVENTS_H

#define GPU_EVENT_COMM_LEN 16

/* Of a process without a utilization sample. */
#define GPU_EVENT_NO_SAMPLE (~0ULL)

enum gpu_event_cause {
	GPU_EVENT_CONTEXT_SWITCH = 0, /* the process left the CPU */
	GPU_EVENT_SYSTEM_CALL = 1,
};

struct gpu_event {
	__u64 boottime_ns;
	__u64 gpu_memory_bytes;
	__u64 sample_age_ns; /* or GPU_EVENT_NO_SAMPLE */
	__u32 tgid;
	__u32 tid;
	__u32 sm_util_pct;
	__u32 mem_util_pct;
	__u32 device_sm_util_pct; /* the busiest of the process's devices */
	__u8 device;              /* GPU_DEVICE_PRIMARY_MULTI: several */
	__u8 device_count;
	__u8 cause; /* enum gpu_event_cause */
	__u8 _pad;
	char comm[GPU_EVENT_COMM_LEN];
};

#endif /* CONSUMERS_GPU_EVENTS_H */
