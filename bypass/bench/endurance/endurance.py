"""Looks for hangs, leaks and wrong bytes: kill storms, reloads, many connections, soaks.

    python3 endurance.py --bypass target/release/bypass [RUN…]

Each run prints one line of counts and exits with status 1 on an error. `--kernel` runs the
same without acceleration. Standard library only.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEATH_MS_MAX = 100

NGINX = """
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 100;
  server {{ listen 127.0.0.1:{port} reuseport; location / {{ return 200 "{body}"; }} }}
}}
"""
BODY = "wirespeed " * 300


class Bench:
    """Starts programs on the kernel or accelerated, and ends what it has started."""

    def __init__(self, options, folder):
        self.options, self.folder = options, Path(folder)
        self.echo = self.folder / "echo"
        subprocess.run(["cc", "-O1", "-w", "-o", self.echo, HERE / "echo.c"], check=True)
        self.started = []
        # A signal to this program ends its child processes too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def command(self, words):
        words = [str(word) for word in words]
        if self.options.kernel:
            return words
        profile = ["-p", self.options.profile] if self.options.profile else []
        return [str(self.options.bypass.resolve()), "run", *profile, "--", *words]

    def start(self, *words, **more):
        process = subprocess.Popen(self.command(words), **{"stdin": subprocess.DEVNULL, **more})
        self.started.append(process)
        return process

    def end(self):
        """Asks first: a master that is killed leaves its workers."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # nginx has left its starter; in an upgrade there are two of them.
        for name in ("nginx.pid", "nginx.pid.oldbin"):
            end_daemon(self.folder / name)


def end_daemon(pid_file):
    """Ends the daemon that wrote its number here, if there still is one, and waits for its end."""
    try:
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError):
        return
    for _ in range(400):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.025)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(port):
    for _ in range(2400):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.025)
    raise SystemExit(f"endurance: port {port} has no listener")


def memory_of(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def storm(bench):
    """Kills server or client at random moments; the others must neither hang nor see a wrong byte,
    and survivors must not hold more resources than before."""
    port, dice, wrong = free_port(), random.Random(bench.options.seed), 0
    before = set(os.listdir("/dev/shm"))
    def client(number):
        return bench.start(bench.echo, "client", port, number, stdout=subprocess.DEVNULL)
    server = bench.start(bench.echo, "server", port)
    wait_for(port)
    clients = [client(number) for number in range(4)]
    survivors = [bench.start(bench.echo, "server", other := free_port()), client(99)]
    wait_for(other)
    short = [bench.start(bench.echo, "client", other, 500)]
    time.sleep(1)
    held = [descriptors_of(process.pid) for process in survivors]
    for kill in range(bench.options.kills):
        if kill % 5 == 0:
            # The server is never killed; its only client is, again and again.
            short[0].kill()
            short[0].wait()
            short[0] = bench.start(bench.echo, "client", other, 500 + kill)
        time.sleep(dice.uniform(0.002, 0.05))
        victim = dice.randrange(5)
        if victim == 4:
            server.kill()
            server.wait()
            server = bench.start(bench.echo, "server", port)
        else:
            clients[victim].kill()
            clients[victim].wait()
            clients[victim] = client(1000 + kill)
        wrong += sum(process.poll() == 3 for process in clients)
    wait_for(port)
    # Memory of killed processes is freed after up to 20 s.
    time.sleep(0 if bench.options.kernel else 21)
    now = [descriptors_of(process.pid) for process in survivors]
    leaked = any(late > early + 8 for early, late in zip(held, now))
    hangs, clients = 0, clients + survivors[1:] + short
    for process in clients:
        process.send_signal(signal.SIGTERM)
    for process in clients:
        try:
            wrong += process.wait(20) not in (0, -signal.SIGTERM)
        except subprocess.TimeoutExpired:
            hangs += 1
    last = bench.start(bench.echo, "hold", port, 200, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    said = last.communicate(timeout=60)[0]
    left = [name for name in set(os.listdir("/dev/shm")) - before if "wirespeed" in name]
    print(f"storm: {bench.options.kills} kills, {wrong} wrong, {hangs} hang, afterwards "
          f"{said.decode().strip()} of 200, {len(left)} files left in /dev/shm; descriptors of a "
          f"server and a client that survived {held} → {now}")
    return wrong + hangs + len(left) + leaked + (said != b"right 200\n")


def workers(bench):
    """Kills nginx's workers under load: a request may end early, but never hang or get a wrong response."""
    port, dice = free_port(), random.Random(bench.options.seed)
    master = _nginx(bench, port)
    load, longest = Load(bench, port, bench.options.seconds), 0
    ends, count = time.monotonic() + bench.options.seconds - 1, 0
    while time.monotonic() < ends:
        time.sleep(dice.uniform(0.02, 0.2))
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        if children:
            os.kill(int(dice.choice(children)), signal.SIGKILL)
            count += 1
        longest = max(longest, descriptors_of(master))
    said = load.result()
    end_daemon(bench.folder / "nginx.pid")
    # Only failures that a killed worker explains are allowed.
    wrong = [kind for kind in ("OSError('200", "timed out", "timeout") if kind in said]
    print(f"workers: {count} killed; requests right, ended early: {said}; the master held at most "
          f"{longest} descriptors")
    return bool(wrong) or said.split()[0] == "0"


def death(bench):
    """How long after SIGKILL of the server a blocked client sees the end."""
    times = []
    for _ in range(bench.options.rounds):
        port = free_port()
        server = bench.start(bench.echo, "server", port)
        wait_for(port)
        program = ("import socket,time,sys\n"
                   f"c=socket.create_connection(('127.0.0.1',{port}))\n"
                   "c.sendall(b'x'); c.recv(1); print('ready',flush=True)\n"
                   "try: c.recv(1)\nexcept OSError: pass\n"
                   "print(time.monotonic_ns(),flush=True)\n")
        client = bench.start(sys.executable, "-c", program, stdout=subprocess.PIPE, text=True)
        client.stdout.readline()
        time.sleep(0.02)
        killed = time.monotonic_ns()
        server.kill()
        server.wait()
        times.append((int(client.stdout.readline()) - killed) / 1e6)
        client.wait(20)
    times.sort()
    print(f"death: seen after {times[len(times) // 2]:.2f} ms (median), {times[-1]:.2f} ms (longest) "
          f"in {len(times)} rounds")
    return times[-1] > DEATH_MS_MAX


class Load:
    """Threads of an accelerated process that send requests to nginx and count errors."""

    PROGRAM = """
import http.client, sys, threading, time
port, length, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
good = [0] * 8; bad = []
# A graceful stop closes idle keep-alive connections; a request that meets this is the client's to
# repeat, on the kernel too. On a fresh connection it is a failure.
ended = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
def ask(number):
    connection, used = None, False
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if connection is None:
                connection, used = http.client.HTTPConnection('127.0.0.1', port, timeout=10), False
            connection.request('GET', '/')
            response = connection.getresponse()
            body = response.read()
            if response.status != 200 or len(body) != length:
                raise OSError(f'{response.status} {len(body)}')
            good[number] += 1
            used = True
            if response.will_close or number % 2:
                connection.close(); connection = None
        except OSError as error:
            if not (used and isinstance(error, ended)):
                bad.append(repr(error))
            connection.close(); connection = None
threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(good), len(bad), bad[:3])
"""

    def __init__(self, bench, port, seconds):
        words = [sys.executable, "-c", self.PROGRAM, port, len(BODY), seconds]
        self.process = bench.start(*words, stdout=subprocess.PIPE, text=True)

    def result(self):
        return self.process.communicate(timeout=120)[0].strip()


def _nginx(bench, port):
    path = bench.folder / "nginx.conf"
    path.write_text(NGINX.format(folder=bench.folder, port=port, body=BODY))
    # An upgrade executes this path again, so it must be complete.
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    bench.start(program, "-c", path).wait(20)
    wait_for(port)
    return int((bench.folder / "nginx.pid").read_text())


def reload(bench):
    """SIGHUP again and again under load: no request may fail."""
    port = free_port()
    master = _nginx(bench, port)
    load = Load(bench, port, bench.options.seconds)
    ends, count = time.monotonic() + bench.options.seconds - 1, 0
    while time.monotonic() < ends:
        time.sleep(0.5)
        os.kill(master, signal.SIGHUP)
        count += 1
    said = load.result()
    end_daemon(bench.folder / "nginx.pid")
    print(f"reload: {count} reloads; requests right, failed: {said}")
    return said.split()[1] != "0" or said.split()[0] == "0"


def upgrade(bench):
    """A new binary takes over (USR2, then QUIT to the old) under load: no request may fail."""
    port = free_port()
    old = _nginx(bench, port)
    load = Load(bench, port, bench.options.seconds)
    time.sleep(bench.options.seconds / 3)
    os.kill(old, signal.SIGUSR2)
    time.sleep(bench.options.seconds / 6)
    os.kill(old, signal.SIGQUIT)
    said = load.result()
    end_daemon(bench.folder / "nginx.pid")
    print(f"upgrade: one; requests right, failed: {said}")
    return said.split()[1] != "0" or said.split()[0] == "0"


def connections(bench):
    """Many connections at once, each used once; memory of both sides."""
    port, count = free_port(), bench.options.connections
    server = bench.start(bench.echo, "server", port)
    wait_for(port)
    started = time.monotonic()
    client = bench.start(bench.echo, "hold", port, count, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    said = client.stdout.readline().strip()
    seconds = time.monotonic() - started
    memory = [memory_of(process.pid) // 1024 for process in (server, client)]
    client.stdin.close()
    client.wait(60)
    print(f"connections: {said} of {count} in {seconds:.1f} s; memory of server and client "
          f"{memory[0]} and {memory[1]} MiB")
    return said != f"right {count}"


def idle(bench):
    """CPU time of server and client with idle connections."""
    port, count = free_port(), 1000
    server = bench.start(bench.echo, "server", port)
    wait_for(port)
    client = bench.start(bench.echo, "hold", port, count, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    client.stdout.readline()
    time.sleep(2)
    def used():
        ticks = [Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ")[1].split()[11:13]
                 for process in (server, client)]
        return [sum(map(int, pair)) for pair in ticks]
    before = used()
    time.sleep(bench.options.seconds)
    share = [(after - start) / os.sysconf("SC_CLK_TCK") / bench.options.seconds * 100
             for start, after in zip(before, used())]
    client.stdin.close()
    print(f"idle: {count} connections; server {share[0]:.2f} %, client {share[1]:.2f} % of a core")
    return 0


def soak(bench):
    """Mixed programs for a while: wrong bytes, failed requests, and memory that grows."""
    port, web, seconds = free_port(), free_port(), bench.options.seconds
    server = bench.start(bench.echo, "server", port)
    wait_for(port)
    _nginx(bench, web)
    clients = [bench.start(bench.echo, "client", port, n, stdout=subprocess.PIPE) for n in range(3)]
    load = Load(bench, web, seconds)
    time.sleep(seconds / 5)
    early = memory_of(server.pid)
    said = load.result()
    late = memory_of(server.pid)
    for process in clients:
        process.send_signal(signal.SIGTERM)
    ends = [process.wait(20) for process in clients]
    counts = [process.stdout.read().decode().strip() for process in clients]
    end_daemon(bench.folder / "nginx.pid")
    print(f"soak: {seconds:.0f} s; echo clients ended {ends} with {counts}; requests right, failed: "
          f"{said}; server's memory {early} → {late} KiB")
    return any(ends) or said.split()[1] != "0" or late > early * 1.5 + 4096


def stutter(bench):
    """Stops and continues either side at random for 1 to 50 ms: nothing is lost, no client hangs."""
    port, dice, stops = free_port(), random.Random(bench.options.seed), 0
    server = bench.start(bench.echo, "server", port)
    wait_for(port)
    clients = [bench.start(bench.echo, "client", port, number, stdout=subprocess.PIPE)
               for number in range(4)]
    ends = time.monotonic() + bench.options.seconds
    while time.monotonic() < ends:
        # Sometimes two at once, which then continue in either order.
        victims = dice.sample([server, *clients], dice.choice((1, 1, 2)))
        for victim in victims:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(0.001, 0.05))
        for victim in dice.sample(victims, len(victims)):
            victim.send_signal(signal.SIGCONT)
        stops += len(victims)
        time.sleep(dice.uniform(0, 0.01))
    hangs, wrong, messages, cut = 0, 0, 0, 0
    for process in clients:
        process.send_signal(signal.SIGUSR1)
    for process in clients:
        try:
            said = process.communicate(timeout=60)[0].decode().split()
            wrong += process.returncode != 0
            if process.returncode == 0:
                messages, cut = messages + int(said[1]), cut + int(said[5])
        except subprocess.TimeoutExpired:
            hangs += 1
    print(f"stutter: {stops} stops; {messages} messages right, {wrong} wrong, {hangs} hang, "
          f"{cut} connections cut")
    return wrong + hangs + cut + (messages == 0)


RUNS = {run.__name__: run
        for run in (storm, workers, death, reload, upgrade, connections, idle, soak, stutter)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", metavar="RUN", help=", ".join(RUNS))
    parser.add_argument("--bypass", type=Path, default=Path("target/release/bypass"))
    parser.add_argument("--profile", default="")
    parser.add_argument("--kernel", action="store_true", help="without acceleration")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = 0
    for name in options.runs or RUNS:
        if name not in RUNS:
            parser.error(f"unknown run {name!r} ({', '.join(RUNS)})")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            bench = Bench(options, folder)
            try:
                wrong += bool(RUNS[name](bench))
            finally:
                bench.end()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
