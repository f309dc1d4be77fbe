/* How often a busy program loses its core to the hypervisor and to interrupts.
 *
 *   taskset -c CORE gaps
 *
 * Prints, after 3 s, how many times per second a loop that only reads the clock stood still for longer than so
 * many microseconds. No percentile of round trips on these cores can be lower than these gaps allow.
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
