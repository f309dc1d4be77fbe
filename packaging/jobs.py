"""Six pages of the documentation, typed as their readers type them: `jobs.py JOB [--short]`.

walk_jobs.py copies this file and docs/ into an empty Debian with the package, and starts it there as root, in a
network of its own. Each job takes files and commands from its pages, adds what a reader brings (a server, a
certificate, hosts), and returns what shows that the page ended where it promises. Standard library only.
"""

import argparse
import fcntl
import json
import os
import re
import shlex
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

DOCS = Path(__file__).parent / "docs"
MINE = Path("/root/mine")
RUNS = Path("/root/.local/share/wirespeed/runs")
PATIENCE_S = 600
SIOCSIFFLAGS, IFF_UP = 0x8914, 1  # linux/sockios.h, linux/if.h
#: A function check: less of each measurement. Without it, commands are typed as the page has them.
SHORT = {"run": "--repeat 3 --accept-noise --set plan.duration=1s --set plan.warmup=1s",
         "compare": "--repeat 5 --duration 300ms --accept-noise --method trials"}
NGINX = """
daemon off; pid nginx.pid; error_log stderr; worker_processes 1;
events { worker_connections 512; }
http {
  access_log off; keepalive_requests 1000000;
  upstream app { server 127.0.0.1:9090; keepalive 64; }
  server {
    listen 8443 ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem;
    location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
"""
APP = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment: the second would wait for a delayed acknowledgment of the first
    def log_message(self, *words): pass
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
ThreadingHTTPServer(("", 9090), Answer).serve_forever()
"""
CERTIFICATE = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
SERVER = """#!/usr/bin/env python3
import selectors, socket, sys
WORK = {work}
def request_of(client):
    try:
        return client.recv(65536)
    except ConnectionError:
        return b""
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])), backlog=128)
listener.setblocking(False)
ready = selectors.DefaultSelector()
ready.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        if key.fileobj is listener:
            client, _ = listener.accept()
            ready.register(client, selectors.EVENT_READ)
        elif request_of(key.fileobj):
            sum(range(WORK))
            key.fileobj.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
        else:
            ready.unregister(key.fileobj)
            key.fileobj.close()
"""
MAKEFILE = "my-server: server.py\n\tcp server.py my-server\n\tchmod +x my-server\n"
PLAIN_NGINX = """
daemon off; pid /run/nginx.pid; error_log stderr; worker_processes 1;
events { worker_connections 512; }
http { access_log off; server { listen 8080; location / { return 200 "ok"; } } }
"""


class Broken(Exception):
    """A page did not end where it promises."""


def page(name):
    return (DOCS / f"{name}.md").read_text()


def commands_of(text):
    blocks = re.findall(r"^ *```console\n(.*?)^ *```", text, re.M | re.S)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ")]


def files_of(text):
    """Each `name`: with the block below it."""
    return dict(re.findall(r"^`([\w.-]+)`:\n\n```\w+\n(.*?)^```", text, re.M | re.S))


def only(pattern, text):
    """The group of the first place in a page that a pattern fits; a page without one has changed."""
    found = re.search(pattern, text, re.M | re.S)
    expect(found, f"the page has nothing like {pattern}")
    return found[1] if found else ""


def section(text, heading):
    return text.split(f"\n## {heading}")[1].split("\n## ")[0]


def block(text, language):
    """The first fenced block in a language."""
    return only(rf"^```{language}\n(.*?)^```", text)


def settings(unit, name):
    """The values of a setting of systemd that count: an empty one takes the earlier ones back."""
    values = []
    for value in re.findall(rf"^{name}=(.*)$", unit, re.M):
        values = [*values, value] if value else []
    return values


def expect(condition, what):
    if not condition:
        raise Broken(what)


def wait_until(condition, what, process=None):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        expect(time.monotonic() < end, f"waited {PATIENCE_S} s for {what}")
        expect(process is None or process.poll() is None, f"a program ended before {what}")
        time.sleep(0.05)


def set_up_loopback():
    """As the start of every machine does; a minimal Debian has no program for it."""
    with Path("/etc/hosts").open("a") as hosts:
        hosts.write("127.0.0.1 localhost\n")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Reader:
    """Types commands in a folder of the reader's own, where ./wirespeed is a link to the front door."""

    def __init__(self, is_short):
        self.is_short = is_short
        self.logs = {}
        MINE.mkdir()
        os.chdir(MINE)
        Path("wirespeed").symlink_to("/usr/bin/wirespeed")

    def type(self, command, codes=(0,), more="", **environment):
        """Runs a command as a shell would; returns what it printed on both streams."""
        command = f"{command} {self._short(command)} {more}".strip()
        begun = time.monotonic()
        done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",  # bodies are random bytes
                              env={**os.environ, **environment})
        print(f"{time.monotonic() - begun:7.1f} s  {command}", flush=True)
        expect(done.returncode in codes, f"`{command}` exited with {done.returncode}:\n{done.stdout[-2000:]}")
        return done.stdout

    def _short(self, command):
        words = shlex.split(command)
        if not self.is_short or words[0] != "./wirespeed":
            return ""
        return SHORT.get(words[1], "")

    def start(self, command, port=None, user=None, **environment):
        """Starts a program that stays; its output goes to a file of its own."""
        print(f"           {command} &", flush=True)
        log = Path(f"/root/log-{len(self.logs)}")
        words = [*(as_user(user) if user else []), *shlex.split(command)]
        with log.open("wb") as output:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env={**os.environ, **environment}, cwd="/" if user else MINE)
        self.logs[process] = log
        if port:
            wait_until(lambda: listens(port), f"`{command}` to listen", process)
        return process

    def output_of(self, process):
        return self.logs[process].read_text(errors="replace")


def stop(process):
    process.terminate()
    return process.wait(timeout=PATIENCE_S)


def as_user(name):
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups"]


def write(path, text, mode=0o644):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def trials():
    """Of the latest run: what its trials recorded."""
    return [json.loads(path.read_text()) for path in (RUNS / "latest").glob("trials/*/trial.json")]


def expect_measured(axis, values):
    measured = {trial["axes"][axis] for trial in trials() if trial["valid"]}
    reasons = {f"{trial['axes'][axis]}: {reason}" for trial in trials() for reason in trial["reasons"]}
    expect(measured == set(values),
           f"valid trials of {axis} {sorted(measured)}, not of {sorted(values)} {sorted(reasons)}")
    expect((RUNS / "latest" / "derived" / "report.html").is_file(), "no report")


def verdict(output, contender):
    """The sentence about a contender, which a run ends in."""
    found = re.findall(rf"^{contender} against .+?\.$", output, re.M | re.S)
    expect(found, f"no sentence about {contender}:\n{output[-2000:]}")
    return " ".join(found[0].split())


def is_nginx_faster(reader):
    text = page("is-nginx-faster-with-bypass")
    write("nginx.conf", NGINX)
    write("app.py", APP)
    reader.type(CERTIFICATE)
    write("my.toml", block(text, "toml"))
    for command in commands_of(text):
        output = reader.type(command.replace("COMMAND", "python3 app.py"))
    expect_measured("wrap", ["plain", "plain-again", "bypass"])
    return verdict(output, "bypass")


def ci(reader):
    text = page("ci")
    compare, = (command for command in commands_of(text) if "--rev main" in command)
    gate, again = (command for command in commands_of(text) if command != compare)
    write("Makefile", MAKEFILE)
    reader.type("git init -q -b main")
    _commit(reader, work=1_000)
    reader.type("git checkout -q -b change")
    _commit(reader, work=40_000)
    reader.type(compare, codes=(3,))
    expect("loss" in Path("out/comment.md").read_text() and Path("out/junit.xml").is_file(), "no comment of a loss")
    _commit(reader, work=1_000)
    reader.type(compare)
    reader.type("make")
    reader.type("./wirespeed init my.toml --command './my-server --port {port}' --port 8000 --connections 1,50")
    output = reader.type(gate, codes=(3,))
    expect(re.search("^wirespeed: .*rps", output, re.M), f"no reason for the exit status:\n{output[-500:]}")
    reader.type(again, codes=(0, 3))
    return "a slower revision exits with 3 and is in the comment, an equal one passes; a rule is checked"


def _commit(reader, work):
    write("server.py", SERVER.format(work=work))
    reader.type("git add Makefile server.py && git -c user.name=a -c user.email=a@example.org commit -qm change")


def two_hosts(reader):
    text = page("two-hosts")
    rack, wide = re.findall(r"^```toml\n(\[site.*?)^```", text, re.M | re.S)
    # Both hosts are this machine: each gets one of its cores, and bypass is refused on links with a rate.
    rack = re.sub(r'rate = "\w+", ', "", rack).replace('"root@server1",', '"root@server1", cores = [0],').replace(
        'hosts = ["root@load1"]', 'hosts = ["root@load1"], cores = [1]')
    write("sites.toml", rack + wide)
    _hosts(reader)
    part = "test=rps1k,workers=1"
    for command in commands_of(text):
        measures = command.startswith("./wirespeed run")
        command = command.replace("link=100G --budget 8h --tune", f"link=100G,{part} --budget 5m").replace("30m", "5m")
        output = reader.type(command, more="--accept-noise --set plan.settle=0s" if measures else "")
        if "--budget" in command:
            expect_measured("stack", ["kernel", "balanced", "performance"])
    return verdict(output, "balanced")


def _hosts(reader):
    """Two hosts with an sshd, on a network with this one and joined by the page's links."""
    reader.type("mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
    reader.type("cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys")
    write("/root/.ssh/config", "StrictHostKeyChecking accept-new\n")
    reader.type("ip link add br0 type bridge && ip address add 10.88.0.1/24 dev br0 && ip link set br0 up")
    _host("server1", "10.88.0.11")
    _host("load1", "10.88.0.12")
    for name, net, mtu in (("p4p1", "192.168.105", 1500), ("p5p1", "192.168.102", 9000)):
        reader.type(f"ip -n server1 link add {name} mtu {mtu} type veth peer name {name} mtu {mtu} netns load1")
        for host, last in (("server1", 35), ("load1", 36)):
            reader.type(f"ip -n {host} address add {net}.{last}/24 dev {name} && ip -n {host} link set {name} up")


def _host(name, address):
    """A network namespace with a /run of its own: locks of hosts lie there."""
    script = ("mount -t tmpfs tmpfs /run && mkdir /run/sshd && ip link set lo up && echo up && exec /usr/sbin/sshd -D "
              f"-o PidFile=none -o ListenAddress={address} -o UsePAM=no -o UseDNS=no")
    for command in (f"ip netns add {name}", f"ip link add {name} type veth peer name eth0 netns {name}",
                    f"ip link set {name} master br0 up", f"ip -n {name} address add {address}/24 dev eth0",
                    f"ip -n {name} link set eth0 up"):
        subprocess.run(command.split(), check=True)
    process = subprocess.Popen(["ip", "netns", "exec", name, "unshare", "--mount", "sh", "-c", script],
                               stdout=subprocess.PIPE)
    assert process.stdout
    expect(process.stdout.readline() == b"up\n", f"{name} does not start")
    with Path("/etc/hosts").open("a") as hosts:
        hosts.write(f"{address} {name}\n")


def bypass_in_production(reader):
    text = page("bypass-in-production")
    folder = Path("/etc/systemd/system/redis-server.service.d")
    subprocess.run(["useradd", "--system", "--user-group", "--uid", "998", "application"], check=True)
    own = Path("/lib/systemd/system/redis-server.service").read_text()
    drop_in = block(text, "ini")
    write(folder / "bypass.conf", drop_in)
    server = _redis(reader, own + drop_in)
    expect(_ask(server) == "shm", "the client is not accelerated")
    for command in commands_of(text):
        reader.type(command.removeprefix("sudo ").replace("1234", str(server.pid)))
        if " off " in command:
            expect(_ask(server) == "kernel", "off has no effect")
    expect(_ask(server) == "shm", "on has no effect")
    stop(server)
    (folder / "bypass.conf").unlink()
    server = _redis(reader, own)
    _benchmark()
    stop(server)
    return "accelerated for two users, off, on, and back; " + "; ".join(
        f"{name}: {_guide(reader, name)}" for name in ("redis", "postgresql"))


def _redis(reader, unit):
    """Starts the service as systemd does: its check, then its command, until it has reported READY."""
    Path("/run/redis").mkdir(exist_ok=True)
    subprocess.run(["chown", "redis:redis", "/run/redis"], check=True)
    environment = dict(one.split("=", 1) for one in settings(unit, "Environment"))
    for check in settings(unit, "ExecStartPre"):
        reader.type(f"{shlex.join(as_user('redis'))} {check}", **environment)
    command, = settings(unit, "ExecStart")
    Path("/run/notify").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind("/run/notify")
        os.chmod("/run/notify", 0o777)
        notified.settimeout(PATIENCE_S)
        server = reader.start(command, user="redis", NOTIFY_SOCKET="/run/notify", **environment)
        while "READY=1" not in notified.recv(4096).decode():
            expect(server.poll() is None, f"redis ended:\n{reader.output_of(server)[-1000:]}")
    return server


def _benchmark():
    """The application, which names redis as the page says."""
    uid = subprocess.run(["id", "-u", "redis"], check=True, capture_output=True, text=True).stdout.strip()
    client = ["env", f"EF_SHARE_WITH={uid}", "bypass", "run", "-p", "safe", "--", "redis-benchmark", "-c", "5", "-n",
              "2000", "-t", "set", "-q"]
    subprocess.run([*as_user("application"), *client], check=True, capture_output=True)


def _ask(server):
    """The path by which the server accepted the application's connections."""
    before = _accepted(server)
    _benchmark()
    memory, kernel = (now - then for now, then in zip(_accepted(server), before))
    return "shm" if memory >= 5 else "kernel" if kernel >= 5 else f"{memory} shm, {kernel} kernel"


def _accepted(server):
    shown = subprocess.run(["bypass", "stat", "--json"], check=True, capture_output=True, text=True).stdout
    mine, = (one for one in json.loads(shown)["processes"] if one["pid"] == server.pid)
    return mine["counters"]["accepts_shm"], mine["counters"]["accepts_kernel"]


def _guide(reader, name):
    text = page(f"guides/{name}")
    for file, content in files_of(text).items():
        write(file, content)
    for command in commands_of(text):
        reader.type(command)
    expect_measured("stack", ["kernel", "kernel-again", "bypass"])
    return f"{len(trials())} trials"


def gateway(reader):
    _filters(reader)
    text = page("gateway-production")
    reader.type(only(r"`(useradd [^`]+)`", text))
    config = "/etc/wirespeed/gateway.toml"
    write(config, block(text, "toml gateway.toml"))
    with Path("/etc/hosts").open("a") as hosts:
        hosts.write("127.0.0.1 shop.internal\n")
    for folder in ("/etc/wirespeed", "/run/wirespeed-gateway", "/var/log/wirespeed-gateway", "/srv/admin"):
        reader.type(f"mkdir -p {folder} && chown -R wirespeed-gateway: {folder}")
    reader.start("./wirespeed origin --port 9090", 9090)
    check, = commands_of(section(text, "1. "))
    expect(reader.type(check).strip() in text, "the check prints something else")
    unit = block(text, "ini wirespeed-gateway.service")
    command, = settings(unit, "ExecStart")
    service = reader.start(command, 8080, user="wirespeed-gateway")
    for path in ("ready", "health", "origins", "metrics"):
        reader.type(f"curl -fs 127.0.0.1:8081/{path}")
    reader.type("curl -fs 127.0.0.1:8080/")
    _change_and_return(reader, text, config)
    reload = settings(unit, "ExecReload")
    for one in reload:
        reader.type(one.replace("$MAINPID", str(service.pid)))
    service.terminate()
    wait_until(lambda: "503" in reader.type("curl -so /dev/null -w '%{http_code}' 127.0.0.1:8081/ready"), "503")
    expect(service.wait(timeout=PATIENCE_S) == 0, "the gateway did not exit with 0")
    expect("/" in Path("/var/log/wirespeed-gateway/access.log").read_text(), "no access log")
    return "a filter is loaded; the service is checked, healthy, changed, rolled back, reloaded and drained"


def _filters(reader):
    text = page("gateway-filters")
    make, origin, serve, ask, state = commands_of(text)
    reader.type(make)
    origin, serve = reader.start(origin, 9090), reader.start(serve, 8080)
    write("filters/Tenant.java", block(section(text, "2. "), "java"))
    wait_until(lambda: "Tenant.java loaded" in reader.output_of(serve), "the filter", serve)
    expect("HTTP/1.1 200 " in reader.type(ask), "a known tenant is refused")
    expect("HTTP/1.1 404 " in reader.type("curl -i 127.0.0.1:8080/"), "an unknown tenant is served")
    expect("tenant" in reader.type(state), "the filter is not listed")
    expect(stop(serve) == 0, "the gateway did not exit with 0")
    stop(origin)


def _change_and_return(reader, text, config):
    """Sections 4 and 5, in the shell of the gateway's user that the page opens."""
    before = Path(config).read_text()
    shell = f"cd /srv/admin && {shlex.join(as_user('wirespeed-gateway'))} bash -e -c "
    change, back = (commands_of(section(text, number)) for number in ("4. ", "5. "))
    expect("snapshot" in reader.type(shell + shlex.quote("\n".join(change))), "the change was refused")
    expect("retries = 3" in Path(config).read_text(), "the file did not change")
    expect("snapshot" in reader.type(shell + shlex.quote("\n".join([change[0], *back]))), "no roll-back")
    expect(Path(config).read_text() == before, "the file is not the former one")


def from_wrk2(reader):
    text = page("from-wrk2")
    write("nginx.conf", PLAIN_NGINX)
    reader.start(f"nginx -e stderr -c {MINE}/nginx.conf", 8080)
    for command in commands_of(text):
        command = command.replace("-d30s", "-d1s") if reader.is_short else command
        output = reader.type(command)
    expect("Requests/sec" in output and "99.000%" in output, output)
    folder = only(r"^\| the Debian package \| put `([^`]+)` first", text)
    script = "wrk2 -t2 -c100 -d1s -R 2000 --latency http://127.0.0.1:8080/ | grep Requests/sec"
    path = f"{folder}:{os.environ['PATH']}"
    rate = reader.type(script, PATH=path).split()[-1]
    expect("--rate" in reader.type("wrk2 -t1 -c1 -d1s http://127.0.0.1:8080/", codes=(1,), PATH=path), "no rate needed")
    return f"a script that calls wrk2 reads {rate} requests/s of 2000"


JOBS = {"is-nginx-faster": is_nginx_faster, "ci": ci, "two-hosts": two_hosts,
        "bypass-in-production": bypass_in_production, "gateway": gateway, "from-wrk2": from_wrk2}
#: Debian packages that a reader of the page has, besides the product and what it recommends.
NEEDS = {"is-nginx-faster": "openssl", "ci": "git make", "two-hosts": "openssh-server iproute2",
         "bypass-in-production": "redis-server postgresql", "gateway": "default-jdk-headless curl procps",
         "from-wrk2": ""}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--short", action="store_true")
    arguments = parser.parse_args()
    set_up_loopback()
    reader = Reader(arguments.short)
    try:
        print(f"END {JOBS[arguments.job](reader)}")
    except Broken as broken:
        print(f"BROKEN {broken}")
        return 1
    finally:
        for process in reader.logs:
            process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
