"""Soak: six kinds of servers and their clients in parallel, all accelerated, for minutes.

    python3 mixed.py --bypass target/release/bypass [--seconds 600] [--kernel]

Each client checks every response. Prints the counts of each pair and a Markdown table of the servers'
memory, descriptors and connections after a tenth of the time and at the end; exits with status 1 if a
response was wrong, a program failed or hung, or a server grew. Needs nginx, wrk, curl, redis-server,
redis-benchmark and memcached; includes http-server if its jar is built.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import endurance

HERE = Path(__file__).resolve().parent
JAR = HERE.parents[2] / "servers" / "http-server" / "target" / "http-server.jar"
PROGRAMS = ("cc", "nginx", "wrk", "curl", "redis-server", "redis-benchmark", "memcached")
FILE_BYTES = 3_000_017
PATIENCE_S = 120
PAUSE_S = 0.002
#: State of ended clients stays in their servers for 12 to 16 s.
REST_S = 20


def talk(port, seconds, exchange):
    """Runs `exchange(socket, dice)` again and again, some connections long, some short; counts."""
    right, dice, ends = 0, random.Random(port), time.monotonic() + seconds
    while time.monotonic() < ends:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
            for _ in range(dice.choice((1, 20, 400))):
                exchange(connection, dice)
                right += 1
                time.sleep(PAUSE_S)
                if time.monotonic() >= ends:
                    break
    return right


def receive(connection, length):
    got = bytearray()
    while len(got) < length:
        piece = connection.recv(length - len(got))
        if not piece:
            raise SystemExit(f"the connection ended after {len(got)} of {length} bytes")
        got += piece
    return bytes(got)


def ask_echo(connection, dice):
    sent = dice.randbytes(dice.randrange(1, 40_000))
    sender = threading.Thread(target=connection.sendall, args=(sent,))
    sender.start()
    if receive(connection, len(sent)) != sent:
        raise SystemExit("a wrong byte")
    sender.join()


def ask_redis(connection, dice):
    key, value = b"key%d" % dice.randrange(50), dice.randbytes(dice.randrange(1, 20_000))
    connection.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n"
                       % (len(key), key, len(value), value))
    expect(connection, b"+OK\r\n")
    connection.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key))
    expect(connection, b"$%d\r\n%s\r\n" % (len(value), value))


def ask_memcached(connection, dice):
    key, value = b"key%d" % dice.randrange(50), dice.randbytes(dice.randrange(1, 20_000))
    connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
    expect(connection, b"STORED\r\n")
    connection.sendall(b"get %s\r\n" % key)
    expect(connection, b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(value), value))


def expect(connection, wanted):
    got = receive(connection, len(wanted))
    if got != wanted:
        raise SystemExit(f"{got[:60]!r} instead of {wanted[:60]!r}")


async def echo_server(port):
    async def one(reader, writer):
        while piece := await reader.read(16_384):
            writer.write(piece)
            await writer.drain()
        writer.close()
    async with await asyncio.start_server(one, "127.0.0.1", port) as server:
        await server.serve_forever()


TALKS = {"echo": ask_echo, "redis": ask_redis, "memcached": ask_memcached}


class Pair:
    """One server and the commands that its clients repeat until the time is over."""

    def __init__(self, name, server, port):
        self.name, self.server, self.port = name, server, port
        self.done, self.wrong, self.clients = 0, [], []

    def repeat(self, bench, ends, words, judge):
        """Starts `words(seconds)` again and again in a thread; `judge` turns its output into a count."""
        def run():
            while (left := ends - time.monotonic()) > 1 and not self.wrong:
                process = bench.start(*words(min(left, 20)), stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True)
                try:
                    said = process.communicate(timeout=left + PATIENCE_S)[0]
                except subprocess.TimeoutExpired:
                    self.wrong.append(f"hangs: {words(0)}")
                    return
                count = judge(said) if process.returncode == 0 else None
                if count is None:
                    self.wrong.append(f"exit {process.returncode}: {said.strip()[-300:]}")
                else:
                    self.done += count
        self.clients.append(threading.Thread(target=run))
        self.clients[-1].start()


def judge_count(said):
    return int(said) if said.strip().isdigit() else None


def judge_wrk(said):
    found = re.search(r"(\d+) requests in", said)
    is_wrong = "Non-2xx" in said or re.search(r"Socket errors: connect [1-9]|read [1-9]", said)
    return int(found[1]) if found and not is_wrong else None


def start_all(bench, options):
    """The servers, each with its port."""
    script, python = Path(__file__).resolve(), sys.executable
    folder, ports = bench.folder, [endurance.free_port() for _ in range(6)]
    pairs = [Pair("echo in C", bench.start(bench.echo, "server", ports[0]), ports[0])]
    pairs.append(Pair("asyncio", bench.start(python, script, "asyncio", ports[1]), ports[1]))
    pairs.append(Pair("redis", bench.start("redis-server", "--port", ports[2], "--save", "",
                                           "--dir", folder, stdout=subprocess.DEVNULL), ports[2]))
    pairs.append(Pair("memcached", bench.start("memcached", "-p", ports[3], "-l", "127.0.0.1",
                                               "-u", "root", "-m", 64), ports[3]))
    (folder / "large").write_bytes(random.Random(5).randbytes(FILE_BYTES))
    text = endurance.NGINX.format(folder=folder, port=ports[4], body=endurance.BODY)
    text = text.replace("location /", f"location /large {{ root {folder}; }} location /")
    (folder / "nginx.conf").write_text("daemon off;\n" + text)
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    nginx = bench.start(program, "-c", folder / "nginx.conf")
    pairs.append(Pair("nginx", nginx, ports[4]))
    if JAR.exists() and options.java:
        java = bench.start("java", "-Xmx96m", "-jar", JAR, "--host", "127.0.0.1", "--port", ports[5],
                           "--payload", 128, "--transport", "nio", "--threads", 1,
                           stdout=subprocess.DEVNULL)
        pairs.append(Pair("http-server (JVM)", java, ports[5]))
    for pair in pairs:
        endurance.wait_for(pair.port)
    return pairs


def load_all(bench, pairs, ends):
    script, python = Path(__file__).resolve(), sys.executable
    large = hashlib.sha256((bench.folder / "large").read_bytes()).hexdigest()
    def talker(kind, port):
        return lambda seconds: (python, script, kind, port, seconds)
    def wrk(port, connections):
        return lambda seconds: ("wrk", "-t1", f"-c{connections}", f"-d{max(1, int(seconds))}s",
                                "--timeout", f"{PATIENCE_S}s", f"http://127.0.0.1:{port}/")
    for pair in pairs:
        if pair.name in ("echo in C", "asyncio"):
            for _ in range(2):
                pair.repeat(bench, ends, talker("echo", pair.port), judge_count)
        elif pair.name in TALKS:
            pair.repeat(bench, ends, talker(pair.name, pair.port), judge_count)
        else:
            pair.repeat(bench, ends, wrk(pair.port, 20), judge_wrk)
        if pair.name == "redis":
            words = ("redis-benchmark", "-p", pair.port, "-c", 20, "-n", 20_000, "-q", "-t", "set,get")
            pair.repeat(bench, ends, lambda _, words=words: words,
                        lambda said: 40_000 if said.count("requests per second") >= 2 else None)
        if pair.name == "nginx":
            url = f"http://127.0.0.1:{pair.port}/large"
            command = f"curl -sf {url} | sha256sum | grep -q {large}"
            pair.repeat(bench, ends, lambda _, command=command: ("sh", "-c", command), lambda _: 1)


def family(pid):
    """A process and its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


def measure(bench, pair):
    """Memory, descriptors and mapped segments of a server's processes, and their output of stat."""
    pids = family(pair.server.pid)
    fds = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    segments = sum(Path(f"/proc/{pid}/maps").read_text().count("wirespeed-segment") for pid in pids)
    sockets = moved = 0
    if not bench.options.kernel:
        said = subprocess.run([bench.options.bypass, "stat", "--json"], capture_output=True, text=True)
        for process in json.loads(said.stdout)["processes"]:
            if process["pid"] in pids:
                sockets += process["sockets"]["shm"]
                moved += process["counters"]["bytes_in_shm"]
    memory = sum(endurance.memory_of(pid) for pid in pids)
    return {"memory": memory, "fds": fds, "segments": segments, "sockets": sockets, "moved": moved}


def has_grown(early, late):
    return late["memory"] > early["memory"] * 1.3 + 16_384 or late["fds"] > early["fds"] + 60


def report(pairs, early, late, is_kernel):
    wrong = 0
    print("| server | answers checked | failures | KiB early → end | descriptors | segments | "
          "connections | MB in by shared memory |\n|---|---|---|---|---|---|---|---|")
    for pair, before, after in zip(pairs, early, late):
        is_dead = pair.server.poll() is not None
        print(f"| {pair.name} | {pair.done} | {len(pair.wrong)} | {before['memory']} → "
              f"{after['memory']} | {before['fds']} → {after['fds']} | {before['segments']} → "
              f"{after['segments']} | {before['sockets']} → {after['sockets']} | "
              f"{after['moved'] // 1_000_000} |")
        wrong += len(pair.wrong) + is_dead + has_grown(before, after) + (pair.done == 0)
        wrong += not is_kernel and after["moved"] == 0
        for line in pair.wrong:
            print(f"mixed: {pair.name}: {line}", file=sys.stderr)
    return wrong


def soak(options):
    shm = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        bench = endurance.Bench(options, folder)
        try:
            pairs = start_all(bench, options)
            ends = time.monotonic() + options.seconds
            load_all(bench, pairs, ends)
            time.sleep(options.seconds / 10)
            early = [measure(bench, pair) for pair in pairs]
            for pair in pairs:
                for client in pair.clients:
                    client.join()
            time.sleep(REST_S)
            late = [measure(bench, pair) for pair in pairs]
            wrong = report(pairs, early, late, options.kernel)
            _end_nginx(pairs)
        finally:
            bench.end()
    left = [name for name in set(os.listdir("/dev/shm")) - shm if "wirespeed" in name]
    print(f"mixed: {options.seconds:.0f} s, {wrong} failures, {len(left)} files left in /dev/shm")
    return 1 if wrong or left else 0


def _end_nginx(pairs):
    """Its workers would outlive a killed master."""
    for pair in pairs:
        if pair.name == "nginx":
            pair.server.send_signal(signal.SIGTERM)
            pair.server.wait(20)


def main():
    if len(sys.argv) > 2 and sys.argv[1] in (*TALKS, "asyncio"):
        kind, port = sys.argv[1], int(sys.argv[2])
        if kind == "asyncio":
            return asyncio.run(echo_server(port))
        print(talk(port, float(sys.argv[3]), TALKS[kind]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bypass", type=Path, default=Path("target/release/bypass"))
    parser.add_argument("--profile", default="")
    parser.add_argument("--kernel", action="store_true", help="without acceleration")
    parser.add_argument("--no-java", dest="java", action="store_false")
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if missing := [name for name in PROGRAMS if not shutil.which(name, path=path)]:
        parser.error(f"not installed: {', '.join(missing)}")
    return soak(options)


if __name__ == "__main__":
    raise SystemExit(main())
