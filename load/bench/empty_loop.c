/* Prints the gaps in which a program that only reads the clock lost its core, one per line.
 *
 * usage: empty_loop SECONDS [rest]; prints "START LENGTH" in ns of each gap of more than 20 us.
 * The caller pins it and sets its priority. With `rest` it sleeps for 60 us of each ms, as a
 * generator with real-time priority does; then only oversleeping is a gap. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { GAP_NS_MIN = 20000, GAPS_MAX = 1 << 20, REST_NS = 60000, REST_EVERY_NS = 1000000 };

static struct gap { uint64_t start_ns, length_ns; } gaps[GAPS_MAX];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

int main(int count, char **words)
{
	uint64_t seconds = count >= 2 ? strtoull(words[1], NULL, 10) : 0;
	const struct timespec rest = {.tv_nsec = REST_NS};
	size_t found = 0;

	if (!seconds) {
		fprintf(stderr, "usage: empty_loop SECONDS [rest]\n");
		return 2;
	}
	/* touched before the loop, so that no gap is a page fault of its own */
	for (size_t at = 0; at < GAPS_MAX; at += 256)
		gaps[at].length_ns = 1;

	uint64_t start = now_ns(), before = start, end = start + seconds * 1000000000ull;
	uint64_t rest_at = count == 3 ? start : UINT64_MAX;
	while (before < end && found < GAPS_MAX) {
		uint64_t now = now_ns();

		if (now > before + GAP_NS_MIN)
			gaps[found++] = (struct gap){before - start, now - before};
		before = now;
		if (now < rest_at)
			continue;
		nanosleep(&rest, NULL);
		before += REST_NS;
		rest_at = before + REST_EVERY_NS;
	}
	for (size_t at = 0; at < found; at++)
		printf("%llu %llu\n", (unsigned long long)gaps[at].start_ns,
		       (unsigned long long)gaps[at].length_ns);
	return 0;
}
