// SPDX-License-Identifier: Apache-2.0
/* Loads gpu_join.bpf.o beside the pinned maps and prints what it sends. Usage: gpu_join OBJECT [PIN-DIR [LINES]] */
#include <errno.h>
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "gpu_join.h"

static long lines_left;

static int print(void *context, void *data, size_t size)
{
	const struct gpu_join *event = data;

	(void)context;
	if (size < sizeof(*event) || !lines_left)
		return 0;
	printf("%s (%u) leaves the CPU: %llu MiB of GPU memory, ", event->comm, event->tgid, event->gpu_memory_bytes >> 20);
	if (event->sample_age_ns == GPU_JOIN_NO_SAMPLE)
		printf("no sample yet\n");
	else
		printf("%u %% busy %llu ms ago\n", event->sm_util_pct, event->sample_age_ns / 1000000);
	lines_left--;
	return 0;
}

static int fail(const char *what)
{
	fprintf(stderr, "gpu_join: cannot %s: %s\n", what, strerror(errno));
	return EXIT_FAILURE;
}

int main(int count, char **arguments)
{
	struct bpf_program *program;
	struct ring_buffer *ring;
	struct bpf_object *object;
	/* Maps that are pinned by name are looked for here, and made where they are not there yet. */
	LIBBPF_OPTS(bpf_object_open_opts, options, .pin_root_path = count > 2 ? arguments[2] : "/sys/fs/bpf");

	if (count < 2) {
		fprintf(stderr, "usage: gpu_join OBJECT [PIN-DIR [LINES]]\n");
		return 2;
	}
	lines_left = count > 3 ? atol(arguments[3]) : -1;

	object = bpf_object__open_file(arguments[1], &options);
	if (!object)
		return fail("open the object");
	if (bpf_object__load(object))
		return fail("load the program (are you root, or do you have CAP_BPF and CAP_PERFMON?)");
	program = bpf_object__find_program_by_name(object, "on_switch");
	if (!program || !bpf_program__attach(program))
		return fail("attach the program");
	ring = ring_buffer__new(bpf_object__find_map_fd_by_name(object, "events"), print, NULL, NULL);
	if (!ring)
		return fail("read the ring buffer");
	while (lines_left) {
		if (ring_buffer__poll(ring, 200) < 0 && errno != EINTR)
			return fail("read the ring buffer");
		fflush(stdout);
	}
	return EXIT_SUCCESS;
}
