"""The server of stall.py: a queue with exactly known capacity, stalls and delay."""

import heapq
import os
import select
import socket
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#: A sleep may end this late, so the server polls at its end. Not longer: the kernel stops a server with
#: real-time priority that always polls for 50 ms of each second.
POLLED_SECONDS = 0.0002


class StallServer:
    """First in, first out at `capacity` per second; stopped in the first `stall` of each period.

    Every response leaves `delay` after its processing, as over a long link: long enough that the time
    of the loopback does not matter.
    """

    def __init__(self, listener, capacity, stall, period, delay):
        self.listener, self.capacity, self.delay = listener, capacity, delay
        self.stall, self.period = stall, period
        self.epoll = select.epoll()
        self.epoll.register(listener, select.EPOLLIN)
        self.streams, self.leaving, self.late = {}, [], []
        self.free_at, self.began = 0.0, time.monotonic()

    def serve(self, core, questions):
        """Serves; for each word on the pipe `questions` it reports how late responses left."""
        os.sched_setaffinity(0, {core})
        self.epoll.register(questions, select.EPOLLIN)
        while True:
            self.send_due()
            wait = self.leaving[0][0] - time.monotonic() if self.leaving else 0.05
            # epoll's own timeouts are whole milliseconds, those of select are not
            select.select([self.epoll], [], [], max(0, wait - POLLED_SECONDS))
            for number, _ in self.epoll.poll(0):
                if number == self.listener.fileno():
                    self.accept()
                elif number == questions.fileno():
                    questions.recv()
                    questions.send(sorted(self.late))
                    self.late = []
                else:
                    self.receive(number)

    def send_due(self):
        """Sends the responses that are due."""
        now = time.monotonic()
        while self.leaving and self.leaving[0][0] <= now:
            due, number = heapq.heappop(self.leaving)
            if number in self.streams:
                self.late.append(now - due)
                try:
                    self.streams[number].send(ANSWER)
                except OSError:
                    pass

    def accept(self):
        """Accepts a connection."""
        stream, _ = self.listener.accept()
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.streams[stream.fileno()] = stream
        self.epoll.register(stream, select.EPOLLIN)

    def receive(self, number):
        """Reads requests of one connection: each gets its place in the queue."""
        try:
            received = self.streams[number].recv(65536)
        except OSError:
            received = b""
        if not received:
            self.epoll.unregister(number)
            self.streams.pop(number).close()
            return
        for _ in range(received.count(b"\r\n\r\n")):
            start = max(self.free_at, time.monotonic())
            into = (start - self.began) % self.period
            if into < self.stall:
                start += self.stall - into
            self.free_at = start + 1 / self.capacity
            heapq.heappush(self.leaving, (self.free_at + self.delay, number))
