"""HTTP/1.1 clients for the soak: each answer is checked against the request that it belongs to.

Every request carries an id that the stub origin repeats; a body must be one that the origin can
make. What is allowed: the answer; an error status of the origin with the same id; 502, 503 or 504 of
the gateway; an answer that visibly breaks off. Everything else is a violation: another request's id or
body, bytes behind an answer, a connection that ends without a byte, silence.
"""

import asyncio
import collections
import hashlib
import itertools
import random
import socket

ANSWER_S_MAX = 300
HEAD_BYTES_MAX = 65536
GATEWAY_STATUS = {502, 503, 504}
ids = itertools.count(1)


class Tally:
    """Results of the requests."""

    def __init__(self):
        self.counts = collections.Counter()
        self.violations = []

    def count(self, what):
        self.counts[what] += 1

    def violation(self, what):
        self.counts["violations"] += 1
        if len(self.violations) < 20:
            self.violations.append(what)

    def add(self, counts, violations):
        self.counts.update(counts)
        self.violations.extend(violations)


def digest(body):
    return hashlib.blake2b(body, digest_size=8).digest()


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on its way."""

    def __init__(self, tally, bodies):
        self.tally = tally
        self.bodies = bodies
        self.buffer = b""
        self.waiting = None
        self.wanted = None
        self.transport = None
        self.is_open = True

    def connection_made(self, transport):
        self.transport = transport

    def send(self, head, body, name):
        """Sends; the future's result is the status, 0 for a broken answer."""
        self.waiting = asyncio.get_running_loop().create_future()
        self.wanted = name
        self.transport.write(head)
        if body:
            self.transport.write(body)
        return self.waiting

    def data_received(self, data):
        if self.waiting is None:
            self.tally.violation(f"bytes that no request asked for: {data[:60]!r}")
            self.transport.abort()
            return
        self.buffer += data
        while self.waiting is not None and self.buffer:
            if not self._answer():
                return
        if self.buffer:
            self.tally.violation(f"bytes behind an answer: {self.buffer[:60]!r}")
            self.transport.abort()

    def _answer(self):
        """Takes one whole answer from the buffer; False when it is not there yet."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > HEAD_BYTES_MAX:
                self.tally.violation(f"no head: {self.buffer[:60]!r}")
                self.transport.abort()
            return False
        lines = self.buffer[:end].split(b"\r\n")
        fields = dict((n.lower(), v.strip()) for n, _, v in (x.partition(b":") for x in lines[1:]))
        status = int(lines[0][9:12])
        if 100 <= status < 200:
            self.buffer = self.buffer[end + 4:]
            return True
        taken = self._body(end + 4, fields)
        if taken is None:
            return False
        body, length = taken
        self.buffer = self.buffer[length:]
        self._judge(status, fields, body)
        if fields.get(b"connection", b"").lower() == b"close":
            self.transport.close()
        self._done(status)
        return True

    def _body(self, at, fields):
        """The body and where it ends, or None."""
        if fields.get(b"transfer-encoding") != b"chunked":
            end = at + int(fields.get(b"content-length", b"0"))
            return (self.buffer[at:end], end) if len(self.buffer) >= end else None
        body = b""
        while True:
            line = self.buffer.find(b"\r\n", at)
            if line < 0:
                return None
            size = int(self.buffer[at:line], 16)
            at = line + 2 + size + 2
            if len(self.buffer) < at:
                return None
            body += self.buffer[line + 2:at - 2]
            if size == 0:
                return body, at

    def _judge(self, status, fields, body):
        name = fields.get(b"x-request-id", b"").decode()
        if not name and status in GATEWAY_STATUS:
            reason = body.decode("latin-1").partition(": ")[2].strip() or body.decode("latin-1").strip()
            self.tally.count(f"{status} of the gateway: {reason}")
        elif name != self.wanted:
            self.tally.violation(f"request {self.wanted} got status {status} for \"{name}\"")
        elif status == 200 and digest(body) not in self.bodies:
            self.tally.violation(f"request {name}: {len(body)} bytes that no origin sends")
        elif status == 200:
            self.tally.count("200")
        elif status in (500, 503):
            self.tally.count(f"{status} of the origin")
        else:
            self.tally.violation(f"request {name} got status {status}")

    def _done(self, status):
        waiting, self.waiting, self.wanted = self.waiting, None, None
        if waiting and not waiting.done():
            waiting.set_result(status)

    def connection_lost(self, reason):
        self.is_open = False
        if self.waiting is not None:
            if self.buffer:
                # Cut within an answer: its length or last chunk is missing, so the client sees it.
                self.tally.count("cut")
            else:
                self.tally.violation(f"request {self.wanted} got nothing: {reason}")
            self._done(0)

    def abandon(self):
        """Goes away in the middle, as clients do."""
        if self.waiting is not None:
            self.tally.count("abandoned by the client")
            self.waiting = None
        self.transport.abort()


async def connect(tally, bodies, port, source):
    """A connection from one of our own addresses, so that ports do not run out."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
    sock.bind((source, 0))
    await loop.sock_connect(sock, ("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _, connection = await loop.create_connection(lambda: Connection(tally, bodies), sock=sock)
    return connection


def request(kind):
    """Head, body and id of a request of this kind: get, length or chunked."""
    name = f"{random.getrandbits(32):08x}-{next(ids)}"
    common = f" /soak/{name} HTTP/1.1\r\nHost: soak\r\nX-Request-Id: {name}\r\n"
    if kind == "get":
        return f"GET{common}\r\n".encode(), b"", name
    body = random.randbytes(random.choice((100, 3000, 40_000)))
    if kind == "length":
        return f"POST{common}Content-Length: {len(body)}\r\n\r\n".encode(), body, name
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:]))
    return (f"PUT{common}Transfer-Encoding: chunked\r\n\r\n".encode(), chunks + b"0\r\n\r\n", name)


async def ask(connection, kind):
    """One request; a missing answer is a violation."""
    head, body, name = request(kind)
    answer = connection.send(head, body, name)
    try:
        return await asyncio.wait_for(answer, ANSWER_S_MAX)
    except TimeoutError:
        connection.tally.violation(f"request {name} got no answer within {ANSWER_S_MAX} s")
        connection.waiting = None
        connection.transport.abort()
        return 0


async def learn(ports, count=256):
    """The digests of all bodies that the origins can make."""
    bodies = set()
    for port in ports:
        connection = Learner()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda c=connection: c, "127.0.0.1", port)
        for _ in range(count):
            bodies.add(digest(await connection.get()))
        transport.close()
    return bodies


class Learner(Connection):
    """Keeps the bodies in place of judging them."""

    def __init__(self):
        super().__init__(Tally(), set())

    async def get(self):
        head, _, name = request("get")
        self.body = b""
        while not self.body:
            # A fault of the mix: asked again.
            await self.send(head.replace(b"\r\n\r\n", b"\r\nX-Stub-Fault: none\r\n\r\n"), b"", name)
        return self.body

    def _judge(self, status, fields, body):
        self.body = body if status == 200 else b""


async def worker(tally, bodies, port, source, gap_s, until):
    """Steady load over one connection, renewed when it ends; some requests are abandoned."""
    loop = asyncio.get_running_loop()
    connection = None
    while loop.time() < until:
        await asyncio.sleep(random.expovariate(1 / gap_s))
        if connection is None or not connection.is_open or connection.transport.is_closing():
            connection = await connect(tally, bodies, port, source)
        kind = random.choices(("get", "length", "chunked"), (85, 10, 5))[0]
        tally.count("sent")
        if random.random() < 0.003:
            head, body, name = request(kind)
            connection.send(head, body[:len(body) // 2], name)
            await asyncio.sleep(random.random() * 0.05)
            connection.abandon()
            connection = None
            continue
        await ask(connection, kind)
    if connection is not None:
        connection.transport.close()
        # Closing takes a turn of the event loop, which ends with the last worker.
        await asyncio.sleep(0.2)


async def hold(pipe, port, count, source, bodies):
    """Opens idle connections; each proves at the beginning and at the end that it works."""
    tally = Tally()
    connections = []
    for start in range(0, count, 100):
        batch = await asyncio.gather(*(connect(tally, bodies, port, source)
                                       for _ in range(min(100, count - start))))
        await asyncio.gather(*(_use(tally, c) for c in batch))
        connections.extend(batch)
    pipe.send(sum(c.is_open for c in connections))
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    left = [c for c in connections if c.is_open]
    for start in range(0, len(left), 100):
        await asyncio.gather(*(_use(tally, c) for c in left[start:start + 100]))
    for connection in connections:
        connection.transport.close()
    await asyncio.sleep(0.5)
    pipe.send((len(left), tally.counts, tally.violations))


async def _use(tally, connection):
    tally.count("sent")
    await ask(connection, "get")


def holder(pipe, port, count, source, bodies):
    """The process of some idle connections: one process alone has too few descriptors."""
    asyncio.run(hold(pipe, port, count, source, bodies))
