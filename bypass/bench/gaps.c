/* How often a core is taken from a program that wants it all: by the hypervisor, by interrupts.
 *
 *   taskset -c CORE gaps
 *
 * Prints, after 3 s, how many times a second a loop that does nothing but read the clock stood still for longer than so
 * many microseconds. No percentile of round trips on these cores can be below what this leaves it.
 */
#include <stdio.h>
#include <time.h>

#define SECONDS 3

static long now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(void) {
  static const int limits[] = {5, 10, 20, 30, 40, 80};
  enum { LIMITS = sizeof limits / sizeof *limits };
  long counts[LIMITS] = {0}, last = now_ns(), end = last + SECONDS * 1000000000L;
  while (last < end) {
    long now = now_ns();
    for (int i = 0; i < LIMITS; i++)
      counts[i] += now - last > limits[i] * 1000L;
    last = now;
  }
  for (int i = 0; i < LIMITS; i++)
    printf(">%d us %ld/s  ", limits[i], counts[i] / SECONDS);
  puts("");
  return 0;
}
