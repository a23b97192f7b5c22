/* SPDX-License-Identifier: Apache-2.0 OR BSD-2-Clause OR GPL-2.0-only */
/*
 * The records in the pinned gpu_* maps. This file is the only place where their layout is written down; the Rust types are generated
 * from it. Sizes, offsets and names are fixed under GPU_SCHEMA_VERSION 1.
 *
 * Times: "timestamp_ns" is CLOCK_REALTIME in nanoseconds; "boottime" is CLOCK_BOOTTIME, what bpf_ktime_get_boot_ns() returns.
 * A metric that the source does not report is 0.
 */
#ifndef GADGET_GPU_TYPES_H
#define GADGET_GPU_TYPES_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define GPU_SCHEMA_VERSION 1

/* Device indices run from 0 to GPU_MAX_DEVICES - 1. */
#define GPU_MAX_DEVICES 16

/* Room for entries in each of the two per-process maps. */
#define GPU_BRIDGE_PID_ENTRIES 4096

/* gpu_device_primary of a process that uses more than one device. */
#define GPU_DEVICE_PRIMARY_MULTI 0xFF

/* gpu_meta, key 0: is what the other maps hold fresh, and how do their clocks relate? Written last in every round. */
struct gpu_meta {
	__u32 schema_version;          /* GPU_SCHEMA_VERSION */
	__u32 n_devices;               /* devices published */
	__u64 last_update_boottime_ns; /* when this round's data was taken */
	__u32 helper_pid;              /* host PID of the bridge */
	__u32 _reserved;
	__s64 clock_offset_ns;         /* REALTIME - BOOTTIME: boottime = timestamp_ns - clock_offset_ns */
};

/* gpu_device, key = device index. timestamp_ns == 0 marks an empty slot. */
struct gpu_device_metrics {
	__u64 timestamp_ns;          /* when the GPU was sampled, REALTIME */
	__u32 sm_util_pct;           /* 0-100 */
	__u32 mem_util_pct;          /* 0-100, share of time that memory was read or written */
	__u64 mem_total;             /* bytes; free = total - used - reserved */
	__u64 mem_used;              /* bytes, without mem_reserved */
	__u64 mem_reserved;          /* bytes held by driver and firmware */
	__u32 temp_c;
	__u32 power_mw;
	__u32 sm_clock_mhz;
	__u32 mem_clock_mhz;
	__u64 throttle_reasons;      /* NVML's clocks-event-reasons bit mask */
	__u64 pcie_tx_kbps;          /* kB/s */
	__u64 pcie_rx_kbps;          /* kB/s */
	__u32 enc_util_pct;          /* 0-100 */
	__u32 dec_util_pct;          /* 0-100 */
	__u64 nvlink_tx_kbps;        /* kB/s, all links together */
	__u64 nvlink_rx_kbps;        /* kB/s, all links together */
	__u64 ecc_corrected_total;   /* since boot (volatile) */
	__u64 ecc_uncorrected_total; /* since boot (volatile) */
	__u32 fan_speed_pct;         /* 0-100 */
	__u32 compute_mode;          /* NVML's nvmlComputeMode_t */
};

/* gpu_per_pid_per_device, key = GPU_PID_DEVICE_KEY(tgid, device index). timestamp_ns == 0: no utilization sample yet. */
struct gpu_pid_metrics {
	__u64 timestamp_ns;    /* of the last utilization sample, REALTIME */
	__u64 used_gpu_memory; /* bytes */
	__u32 sm_util_pct;     /* 0-100 */
	__u32 mem_util_pct;    /* 0-100 */
	__u32 enc_util_pct;    /* 0-100 */
	__u32 dec_util_pct;    /* 0-100 */
	__u8 gpu_device;       /* device index */
	__u8 mig_instance;     /* GPU instance id, 0 when not MIG */
	__u16 _pad;            /* 4 zero bytes of alignment follow */
};

/* gpu_per_pid, key = tgid: one process over all its devices. */
struct gpu_pid_metrics_aggregated {
	__u64 timestamp_ns;          /* newest over the devices, REALTIME; 0: no utilization sample yet */
	__u64 used_gpu_memory_total; /* bytes, sum over the devices */
	__u32 sm_util_pct_max;       /* 0-100, maximum over the devices */
	__u32 mem_util_pct_max;      /* 0-100, maximum over the devices */
	__u8 gpu_device_primary;     /* the device, or GPU_DEVICE_PRIMARY_MULTI */
	__u8 device_count;           /* devices that the process uses */
	__u16 _pad;                  /* 4 zero bytes of alignment follow */
};

#define GPU_PID_DEVICE_KEY(tgid, device) (((__u64)(tgid) << 32) | (__u32)(device))

/* The rest describes gpu_bridge_state, the bridge's own map. No consumer needs it; the four maps above are complete without it. */

#define GPU_BRIDGE_STATE_VERSION 1
#define GPU_BRIDGE_UUID_LEN 96
#define GPU_BRIDGE_PCI_LEN 32
#define GPU_BRIDGE_NAME_LEN 96
#define GPU_BRIDGE_VERSION_LEN 80

enum gpu_bridge_phase {
	GPU_BRIDGE_STARTING = 0,
	GPU_BRIDGE_PUBLISHING = 1,
	GPU_BRIDGE_WAITING = 2,  /* for the driver, which was there or must come */
	GPU_BRIDGE_IDLE = 3,     /* no GPU, by design */
	GPU_BRIDGE_STOPPING = 4,
};

enum gpu_bridge_source {
	GPU_BRIDGE_SOURCE_NONE = 0,
	GPU_BRIDGE_SOURCE_REAL = 1,
	GPU_BRIDGE_SOURCE_MOCK = 2,
	GPU_BRIDGE_SOURCE_MOCK_FALLBACK = 3, /* invented data, since the real source could not be opened */
};

enum gpu_bridge_device_phase {
	GPU_BRIDGE_DEVICE_ABSENT = 0,
	GPU_BRIDGE_DEVICE_ANSWERING = 1,
	GPU_BRIDGE_DEVICE_LATE = 2, /* its last record is held */
	GPU_BRIDGE_DEVICE_LOST = 3, /* its slot is empty */
};

/* One device of gpu_bridge_state. */
struct gpu_bridge_device {
	char uuid[GPU_BRIDGE_UUID_LEN];      /* NUL-terminated, like all texts here */
	char pci_bus_id[GPU_BRIDGE_PCI_LEN];
	char name[GPU_BRIDGE_NAME_LEN];
	__u32 phase;                         /* enum gpu_bridge_device_phase */
	__u32 vendor_id;                     /* PCI vendor id, 0 when unknown */
	__u64 metrics_present;               /* bit n: the n-th field of gpu_device_metrics (0 = timestamp_ns) is reported */
};

/* gpu_bridge_state, key 0; BPF_F_MMAPABLE. */
struct gpu_bridge_state {
	__u64 sequence;             /* odd while a round is being written */
	__u32 version;              /* GPU_BRIDGE_STATE_VERSION */
	__u32 phase;                /* enum gpu_bridge_phase */
	__u32 source;               /* enum gpu_bridge_source */
	__u32 n_devices;            /* devices described below */
	__u32 helper_pid;
	__u32 processes_left_out;   /* in the newest round, for want of room */
	__u64 poll_interval_ns;
	__u64 started_boottime_ns;
	__u64 rounds;               /* published since start */
	__u64 late_ticks;
	__u64 skipped_ticks;
	__u64 alive_boottime_ns;    /* when the bridge's loop last went round: at least once a second, whatever the phase */
	char driver_version[GPU_BRIDGE_VERSION_LEN];
	char bridge_version[GPU_BRIDGE_VERSION_LEN];
	struct gpu_bridge_device devices[GPU_MAX_DEVICES];
};

#ifndef __cplusplus
/* A compiler that aligns __u64 to 4 bytes (32-bit x86) must not read the maps with these structs. */
_Static_assert(sizeof(struct gpu_pid_metrics) == 40 && sizeof(struct gpu_pid_metrics_aggregated) == 32, "layout of the gpu_* maps");
#endif

#endif /* GADGET_GPU_TYPES_H */
