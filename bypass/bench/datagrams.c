/* Sends and echoes datagrams, for datagrams.py.
 *
 *   datagrams serve block|poll|epoll PORT                       echoes every datagram until it is ended
 *   datagrams ask ADDRESS PORT SIZE WINDOW SECONDS              keeps WINDOW datagrams of SIZE bytes in flight
 *
 * The second prints the echoes per second, the 50th, 99th and 99.9th percentile of the round trip in
 * nanoseconds, and how many had no answer in time.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define SIZE_MAX_UDP 65507
#define TIMES_MAX 8000000

static char bytes[SIZE_MAX_UDP];

static void need(int condition, const char *what) {
  if (condition)
    return;
  perror(what);
  exit(2);
}

static long now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void answer(int fd) {
  struct sockaddr_storage sender;
  socklen_t length = sizeof sender;
  ssize_t got = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&sender, &length);
  if (got >= 0)
    sendto(fd, bytes, got, 0, (struct sockaddr *)&sender, length);
}

static void serve(const char *wait, int port) {
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
  need(bind(fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
  int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN}, found;
  need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
  struct pollfd one = {.fd = fd, .events = POLLIN};
  for (;;) {
    if (*wait == 'p')
      poll(&one, 1, -1);
    else if (*wait == 'e')
      epoll_wait(set, &found, 1, -1);
    answer(fd);
  }
}

static int by_value(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static void send_one(int fd, int size) {
  long now = now_ns();
  memcpy(bytes, &now, sizeof now);
  send(fd, bytes, size, 0);
}

static void ask(char **words) {
  int size = atoi(words[2]), window = atoi(words[3]);
  double seconds = atof(words[4]);
  need(size >= 8 && size <= SIZE_MAX_UDP, "a size");
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
  need(inet_pton(AF_INET, words[0], &name.sin_addr) == 1, "an address");
  int fd = socket(AF_INET, SOCK_DGRAM, 0), count = 0, lost = 0;
  need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
  struct timeval patience = {0, 200000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  int *times = malloc(TIMES_MAX * sizeof *times);
  long start = now_ns(), end = start + (long)(seconds * 1e9), now = start;
  for (int i = 0; i < window; i++)
    send_one(fd, size);
  while (now < end && count < TIMES_MAX) {
    long sent;
    if (recv(fd, bytes, sizeof bytes, 0) < 8) {
      /* All of the window were lost, or as good as that. */
      lost += window;
      for (int i = 0; i < window; i++)
        send_one(fd, size);
      now = now_ns();
      continue;
    }
    memcpy(&sent, bytes, sizeof sent);
    now = now_ns();
    times[count++] = now - sent;
    send_one(fd, size);
  }
  need(count > 0, "no answer");
  qsort(times, count, sizeof *times, by_value);
  printf("%.0f %d %d %d %d\n", count / ((now - start) / 1e9), times[count / 2], times[(long)count * 99 / 100],
         times[(long)count * 999 / 1000], lost);
}

int main(int count, char **words) {
  if (count == 4 && !strcmp(words[1], "serve"))
    serve(words[2], atoi(words[3]));
  if (count == 7 && !strcmp(words[1], "ask")) {
    ask(words + 2);
    return 0;
  }
  fprintf(stderr, "usage: datagrams serve block|poll|epoll PORT | ask ADDRESS PORT SIZE WINDOW SECONDS\n");
  return 2;
}
