/* What a core takes from a program that only looks at the clock: the gaps, one a line.
 *
 * usage: empty_loop SECONDS; prints "START LENGTH" in ns of each gap of more than 20 us.
 * Pin it and give it its priority from outside. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { GAP_NS_MIN = 20000, GAPS_MAX = 1 << 20 };

static struct gap { uint64_t start_ns, length_ns; } gaps[GAPS_MAX];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

int main(int count, char **words)
{
	uint64_t seconds = count == 2 ? strtoull(words[1], NULL, 10) : 0;
	size_t found = 0;

	if (!seconds) {
		fprintf(stderr, "usage: empty_loop SECONDS\n");
		return 2;
	}
	/* touched before the loop, so that no gap is a page fault of its own */
	for (size_t at = 0; at < GAPS_MAX; at += 256)
		gaps[at].length_ns = 1;

	uint64_t start = now_ns(), before = start, end = start + seconds * 1000000000ull;
	while (before < end && found < GAPS_MAX) {
		uint64_t now = now_ns();

		if (now - before > GAP_NS_MIN)
			gaps[found++] = (struct gap){before - start, now - before};
		before = now;
	}
	for (size_t at = 0; at < found; at++)
		printf("%llu %llu\n", (unsigned long long)gaps[at].start_ns,
		       (unsigned long long)gaps[at].length_ns);
	return 0;
}
