/* SPDX-License-Identifier: Apache-2.0 */
/* A program that launches kernels: for each number on its standard input that many. Each line is answered with "done". */
#include <stdio.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

int main(void)
{
	int count;

	while (scanf("%d", &count) == 1) {
		for (int i = 0; i < count; i++)
			cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
