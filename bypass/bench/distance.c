/* The distance of two cores: the round trip of a cache line between them.
 *
 *   distance CORE CORE
 *
 * Prints the median of 15 times 500 round trips in nanoseconds, after a few milliseconds. Two threads of one core, or cores that
 * share a cache, are below 100 ns, cores with separate caches at some 300. A hypervisor may move a guest's cores from one to the other
 * at any time, which changes ratios of kernel and bypass by a factor of several, so every result needs the distance next to it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TURNS 15
#define TRIPS 500

/* Odd: asked; even: answered. */
static _Alignas(128) atomic_long word;

static void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set)) {
    perror("distance: a core");
    exit(2);
  }
}

static _Noreturn void *answer(void *core) {
  pin(*(int *)core);
  for (;;) {
    long asked = atomic_load_explicit(&word, memory_order_acquire);
    if (asked & 1) atomic_store_explicit(&word, asked + 1, memory_order_release);
  }
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static void ask(int trips) {
  for (int i = 0; i < trips; i++) {
    long asked = atomic_load_explicit(&word, memory_order_relaxed) + 1;
    atomic_store_explicit(&word, asked, memory_order_release);
    while (atomic_load_explicit(&word, memory_order_acquire) == asked) {
    }
  }
}

static int ascending(const void *one, const void *other) {
  double difference = *(const double *)one - *(const double *)other;
  return (difference > 0) - (difference < 0);
}

int main(int count, char **words) {
  if (count != 3) {
    fprintf(stderr, "usage: distance CORE CORE\n");
    return 2;
  }
  int other = atoi(words[2]);
  pthread_t thread;
  if (pthread_create(&thread, NULL, answer, &other)) {
    perror("distance: pthread_create");
    return 2;
  }
  pin(atoi(words[1]));
  double ns[TURNS];
  ask(TRIPS);
  for (int turn = 0; turn < TURNS; turn++) {
    double began = seconds();
    ask(TRIPS);
    ns[turn] = (seconds() - began) / TRIPS * 1e9;
  }
  qsort(ns, TURNS, sizeof *ns, ascending);
  printf("%.0f\n", ns[TURNS / 2]);
}
