// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* One line for each living process that uses a GPU. */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

#define GPU_BRIDGE_WANT_PER_PID
#include <gadget/gpu_bridge_maps.h>

#define COMM_LEN 16

SEC("iter/task")
int gpu_tasks(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct gpu_pid_metrics_aggregated *process;
	char comm[COMM_LEN] = {};
	int i;

	if (!task || task->pid != task->tgid)
		return 0;
	process = gpu_pid_holder(task->tgid, 0);
	if (!process)
		return 0;

	/* A process may put a line break into its name; the output is read by lines. */
	bpf_probe_read_kernel_str(comm, sizeof(comm), task->comm);
	for (i = 0; i < COMM_LEN - 1; i++)
		if (comm[i] > 0 && comm[i] < ' ')
			comm[i] = '?';

	BPF_SEQ_PRINTF(seq, "%d %llu %llu %u %u %u %u %s\n", task->tgid, process->timestamp_ns, process->used_gpu_memory_total,
		       process->sm_util_pct_max, process->mem_util_pct_max, process->gpu_device_primary, process->device_count, comm);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
