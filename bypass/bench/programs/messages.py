"""Brokers, and programs that move bytes."""

import json
import os

from place import digest


def mosquitto(place):
    place.write("m.conf", "listener 1883 127.0.0.1\nallow_anonymous true\npersistence false\n")
    place.server(["mosquitto", "-c", place.folder / "m.conf"], 1883)
    where = ["-h", "127.0.0.1", "-p", "1883", "-q", "1"]
    lines = "".join(f"message {i} {'x' * (i % 200)}\n" for i in range(2000))
    place.write("go.sh", f"""#!/bin/sh
mosquitto_sub {' '.join(where)} -t topic -C 2000 > {place.folder}/got &
sub=$!
until grep -q :075B.*01 /proc/net/tcp || sleep 0.3; do :; done
sleep 1
mosquitto_pub {' '.join(where)} -t topic -l
wait $sub
""")
    yield place.client(["sh", place.folder / "go.sh"], input=lines.encode())
    yield digest((place.folder / "got").read_bytes())
    place.client(["mosquitto_pub", *where, "-t", "kept", "-r", "-m", "retained"])
    yield place.client(["mosquitto_sub", *where, "-t", "kept", "-C", "1"])


BEANSTALKD = """
import socket
connection = socket.create_connection(('127.0.0.1', 11300))
lines = connection.makefile('rwb')
def ask(text):
    lines.write(text); lines.flush()
    return lines.readline()
good = 0
for i in range(2000):
    body = b'j' * (i % 3000)
    good += ask(b'put 0 0 60 %d\\r\\n%s\\r\\n' % (len(body), body)).startswith(b'INSERTED')
for i in range(2000):
    _, number, length = ask(b'reserve\\r\\n').split()
    good += len(lines.read(int(length) + 2)) == int(length) + 2
    good += ask(b'delete %s\\r\\n' % number) == b'DELETED\\r\\n'
print('good', good)
"""


def beanstalkd(place):
    place.server(["beanstalkd", "-l", "127.0.0.1", "-p", "11300"], 11300)
    yield place.client(["/usr/bin/python3", "-c", BEANSTALKD])


NATS = """
import socket
def meet():
    connection = socket.create_connection(('127.0.0.1', 4222))
    lines = connection.makefile('rwb')
    lines.readline()
    lines.write(b'CONNECT {"verbose":false}\\r\\nPING\\r\\n'); lines.flush()
    lines.readline()
    return lines
a, b = meet(), meet()
a.write(b'SUB topic 1\\r\\nPING\\r\\n'); a.flush(); a.readline()
for i in range(2000):
    b.write(b'PUB topic %d\\r\\n%s\\r\\n' % (i % 500, b'x' * (i % 500)))
b.flush()
good = 0
for i in range(2000):
    head = a.readline().split()
    good += head[0] == b'MSG' and len(a.read(int(head[3]) + 2)) == i % 500 + 2
print('good', good)
"""


def nats(place):
    place.server(["nats-server", "-a", "127.0.0.1", "-p", "4222"], 4222)
    yield place.client(["/usr/bin/python3", "-c", NATS])


def iperf3(place):
    place.server(["iperf3", "-s", "-B", "127.0.0.1", "-p", "5201"], 5201)
    for words in ([], ["-R"]):
        text = place.client(["iperf3", "-c", "127.0.0.1", "-p", "5201", "-n", "20M", "-P", "4", "-J", *words])
        end = json.loads(text).get("end", {})
        yield end["sum_received"]["bytes"] >= 4 * 20_000_000 - 2_000_000
        yield "error" in text


def socat(place):
    place.server(["socat", "TCP-LISTEN:7000,bind=127.0.0.1,reuseaddr,fork", "EXEC:cat"], 7000)
    data = bytes(range(256)) * 8000
    for _ in range(3):
        text = place.client(["socat", "-t", "10", "-", "TCP:127.0.0.1:7000"], input=data)
        yield digest(text)


def ncat(place):
    received = place.folder / "received"
    data = os.urandom(1) * 2_000_000
    for _ in range(3):
        place.server(["ncat", "-l", "127.0.0.1", "7000", "-o", "/dev/null", "--recv-only", "-c",
                      f"cat > {received}"], 7000)
        place.client(["ncat", "--send-only", "127.0.0.1", "7000"], input=data)
        for _ in range(200):
            if received.exists() and received.stat().st_size == len(data):
                break
            place.plainly(["sleep", "0.05"])
        yield received.exists() and received.read_bytes() == data
        received.unlink(missing_ok=True)
