// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* What the bridge says of itself: a line for the bridge, then one for each device with its name. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

#define GPU_BRIDGE_WANT_STATE
#include <gadget/gpu_bridge_maps.h>

SEC("iter/bpf_map_elem")
int gpu_state(struct bpf_iter__bpf_map_elem *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	const struct gpu_bridge_state *state = ctx->value;
	__u32 index;

	if (!state || state->version != GPU_BRIDGE_STATE_VERSION)
		return 0;
	BPF_SEQ_PRINTF(seq, "bridge %u %u %u %u %llu\n", state->helper_pid, state->phase, state->source, state->n_devices,
		       state->poll_interval_ns);
	for (index = 0; index < GPU_MAX_DEVICES; index++) {
		const struct gpu_bridge_device *device = &state->devices[index];

		if (device->phase != GPU_BRIDGE_DEVICE_ABSENT)
			BPF_SEQ_PRINTF(seq, "device %u %u %s %s\n", index, device->phase, device->uuid, device->name);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
