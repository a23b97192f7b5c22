// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* One line for each used slot of gpu_device: the index and every field, in the record's order. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

#define GPU_BRIDGE_WANT_DEVICE
#include <gadget/gpu_bridge_maps.h>

SEC("iter/bpf_map_elem")
int gpu_devices(struct bpf_iter__bpf_map_elem *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	const __u32 *index = ctx->key;
	const struct gpu_device_metrics *device = ctx->value;

	if (!index || !device || !device->timestamp_ns)
		return 0;

	/* Two calls: bpf_seq_printf takes at most 12 values. */
	BPF_SEQ_PRINTF(seq, "%u %llu %u %u %llu %llu %llu %u %u %u %u ", *index, device->timestamp_ns, device->sm_util_pct,
		       device->mem_util_pct, device->mem_total, device->mem_used, device->mem_reserved, device->temp_c,
		       device->power_mw, device->sm_clock_mhz, device->mem_clock_mhz);
	BPF_SEQ_PRINTF(seq, "%llu %llu %llu %u %u %llu %llu %llu %llu %u %u\n", device->throttle_reasons, device->pcie_tx_kbps,
		       device->pcie_rx_kbps, device->enc_util_pct, device->dec_util_pct, device->nvlink_tx_kbps,
		       device->nvlink_rx_kbps, device->ecc_corrected_total, device->ecc_uncorrected_total, device->fan_speed_pct,
		       device->compute_mode);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
