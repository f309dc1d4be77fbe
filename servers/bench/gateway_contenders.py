"""The gateways that gateway.py compares, and further ones given to it: commands, files, start.

A contender of your own is a table in a TOML file (`--contenders FILE`), its name the table's:

  [zuul2]
  command = "{java} -Xmx1g -cp /opt/zuul2/* Main --config {folder}/zuul.properties"
  kind = "jvm"                     # is warmed for --warm seconds; "native" (the default) for 1 s
  settle-seconds = 10              # longest wait until it answers on its port; 30 by default
  [zuul2.files]                    # written into {folder} before the start
  "zuul.properties" = "server.port={port}\\nbackend=127.0.0.1:{origin}\\n"
  [zuul2.env]
  JAVA_OPTS = "-server"

In all of these {port} is where it has to listen, {origin} the origin's port (both on 127.0.0.1),
{folder} a folder of its own, {java} the Java of --java, and {jvm} the heap, collector and pages that
all JVMs have when several are compared. Other braces are written twice.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import gateway_envoy
import gateway_h2o

SERVERS = Path(__file__).resolve().parent.parent
# Below the range of ephemeral ports, where any client may sit.
PORTS = range(22001, 22999)
# As root nginx would give its workers to a user who may not enter the folder of the run, and without
# its cache and temporary files it answers 500.
NGINX = """
user root; worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
worker_rlimit_nofile 65536;
events {{ worker_connections 20000; }}
http {{ HTTP
  access_log off; keepalive_timeout 300s; keepalive_requests 10000000;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream o {{ server 127.0.0.1:{origin}; keepalive 2048; keepalive_requests 10000000; }}
  server {{ listen 127.0.0.1:{port} backlog=4096LISTEN; SERVER
    location / {{ proxy_pass http://o; proxy_http_version 1.1;
      proxy_set_header Connection "CONNECTION"; HEADERS LOCATION }} }}
}}
"""
# Header fields that the gateway adds by default, for the same work.
NGINX_HEADERS = """proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
      proxy_set_header Via "1.1 nginx";"""
HAPROXY = """
global
  nbthread 1
  maxconn 9000
  # By default connections to the origin are pooled up to a fifth of the descriptors only: fewer than
  # these cells have, and each request beyond would open one.
  tune.pool-high-fd-ratio 90
  tune.pool-low-fd-ratio 80
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  timeout tunnel 300s
  option http-keep-alive
  http-reuse always
frontend f
  bind 127.0.0.1:{port} backlog 4096BIND
FRONTEND  default_backend b
backend b
  server o 127.0.0.1:{origin} pool-max-conn 4096 pool-purge-delay 3600s
BACKENDMORE"""

# Where several JVMs are compared, all of them have one heap, collector and kind of pages.
EQUAL_JVM = ["-Xms1500m", "-Xmx1500m", "-Xmn500m", "-XX:+UseParallelGC", "-XX:+AlwaysPreTouch",
             "-XX:+UseTransparentHugePages"]
HEAP_AND_COLLECTOR = ("-Xms", "-Xmx", "-Xmn", "-XX:+Use", "-XX:+AlwaysPreTouch")


@dataclass
class Contender:
    """One gateway: how it is started and how long it has to be warmed."""

    name: str
    command: str
    kind: str = "native"
    settle_s: float = 30
    files: dict = field(default_factory=dict)
    env: dict = field(default_factory=dict)
    port: int = 0
    scheme: str = "http"
    load: tuple = ()
    process: subprocess.Popen = None

    def start(self, java, origin, folder, core, log, certificate):
        folder.mkdir()
        places = {**certificate, "port": self.port, "origin": origin, "folder": folder, "java": java,
                  "jvm": " ".join(EQUAL_JVM)}
        for name, text in self.files.items():
            (folder / name).write_text(text.format(**places))
        command = [word.format(**places) for word in shlex.split(self.command)]
        env = {name: text.format(**places) for name, text in self.env.items()}
        self.process = subprocess.Popen(["taskset", "-c", str(core), *command], stdout=log,
                                        stderr=log, env={**os.environ, **env}, cwd=folder,
                                        start_new_session=True)


def jvm_flags(file, java):
    """The flags of a jvm.options that this Java knows."""
    text = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    major = int(text.split('"')[1].split(".")[0])
    flags = []
    for line in file.read_text().splitlines():
        least, _, rest = line.strip().rpartition("+: ")
        if line.strip() and not line.startswith("#") and (not least or major >= int(least)):
            flags.append(rest)
    return flags


def ours(module, java, flags, cell, *arguments, options="jvm.options"):
    """A gateway of this repository."""
    where = ("--config {folder}/gateway.toml" if cell.ours_toml
             else "--origin 127.0.0.1:{origin}")
    return shlex.join([java, *jvm_flags(SERVERS / module / options, java), *flags, "-jar",
                       str(SERVERS / module / "target" / f"{module}.jar")]) \
        + " --listen 127.0.0.1:{port} --set limits.in-flight=100000 " + where + " " \
        + shlex.join(arguments + cell.ours)


def nginx(headers, cell):
    found = shutil.which("nginx") or "/usr/sbin/nginx"
    return {"command": f"{found} -c {{folder}}/nginx.conf",
            "files": {"nginx.conf": NGINX.replace("HEADERS", headers).replace(
                "HTTP", cell.nginx_http).replace("LISTEN", cell.nginx_listen).replace(
                "SERVER", cell.nginx_server).replace(
                "CONNECTION", "upgrade" if cell.websocket else "").replace(
                "LOCATION", cell.nginx_location)}}


def haproxy(cell):
    found = shutil.which("haproxy") or "/usr/sbin/haproxy"
    return {"command": f"{found} -f {{folder}}/haproxy.cfg", "files": {
        "haproxy.cfg": HAPROXY.replace("BIND", cell.haproxy_bind).replace(
            "FRONTEND", cell.haproxy_frontend).replace("BACKEND", cell.haproxy_backend).replace(
            "MORE", cell.haproxy_more)}}


def with_metrics(java, flags, cell):
    """Times exchanges by route and origin, which it does where somebody can read them."""
    return ours("gateway-netty", java, flags, cell, "--threads", "1", "--admin", "127.0.0.1:0")


def transport(name):
    return lambda java, flags, cell: ours("gateway-netty", java, flags, cell, "--threads", "1",
                                          "--transport", name)


def small(java, flags, cell):
    # glibc keeps an arena per thread, and never returns it.
    return shlex.join(["env", "MALLOC_ARENA_MAX=1"]) + " " + ours(
        "gateway-netty", java, flags, cell, "--threads", "1", options="jvm-small.options")


OURS = {
    "netty": transport("epoll"), "netty-nio": transport("nio"),
    "netty-io_uring": transport("io_uring"), "netty-small": small, "netty-metrics": with_metrics,
    "tomcat": lambda java, flags, cell: ours("gateway-tomcat", java, flags, cell, "--threads",
                                             "platform"),
    "tomcat-virtual": lambda java, flags, cell: ours("gateway-tomcat", java, flags, cell,
                                                     "--threads", "virtual"),
}
OTHERS = {"nginx": lambda cell: nginx("", cell),
          "nginx-headers": lambda cell: nginx(NGINX_HEADERS, cell),
          "haproxy": haproxy, "h2o": gateway_h2o.h2o, "envoy": gateway_envoy.envoy}


def with_equal_jvm(command):
    """A Java command line of ours with the heap and the collector that all JVMs get."""
    java, *words = shlex.split(command)
    kept = [word for word in words if not word.startswith(HEAP_AND_COLLECTOR)]
    return shlex.join([java, *EQUAL_JVM, *kept])


def of_name(name, java, cell):
    """nginx, haproxy, h2o, envoy, or one of ours with @25 for another Java and %FLAG for more JVM flags."""
    kind, *flags = name.split("%")
    kind, _, major = kind.partition("@")
    if kind in OTHERS:
        return Contender(name, **OTHERS[kind](cell))
    if kind not in OURS:
        raise SystemExit(f"no gateway {kind}: there are {', '.join([*OTHERS, *OURS])}, and those"
                         " of --contenders FILE")
    own = os.environ.get("JAVA" + major) if major else java
    if not own:
        raise SystemExit(f"{name}: set the environment variable JAVA{major} to that java")
    files = {"gateway.toml": cell.ours_toml} if cell.ours_toml else {}
    return Contender(name, OURS[kind](own, flags, cell), kind="jvm", files=files)


def of_file(file):
    """The contenders of a TOML file, as this module's text describes it."""
    found = {}
    for name, table in tomllib.loads(file.read_text()).items():
        unknown = set(table) - {"command", "kind", "settle-seconds", "files", "env"}
        if unknown or "command" not in table:
            raise SystemExit(f"{file}: [{name}] needs a command and knows nothing of "
                             f"{', '.join(sorted(unknown)) or 'none'}")
        settle = table.pop("settle-seconds", 30)
        found[name] = Contender(name, settle_s=settle, **table)
    return found


def free_ports():
    """Ports without a listener, neither on 127.0.0.1 nor on all addresses."""
    for port in PORTS:
        with socket.socket(socket.AF_INET6) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("::", port))
                yield port


def chosen(names, files, java, ports, cell):
    """The contenders with these names, each with a port of its own."""
    given = {name: own for file in files for name, own in of_file(file).items()}
    contenders = [given.get(name) or of_name(name, java, cell) for name in names]
    # netty-small is about the least heap; the others get their own one.
    equal = [one for one in contenders
             if one.kind == "jvm" and not one.name.startswith("netty-small")]
    if len(equal) > 1:
        for contender in equal:
            if contender.name not in given:
                contender.command = with_equal_jvm(contender.command)
    for contender in contenders:
        contender.port = next(ports)
        contender.scheme, contender.load = cell.scheme, cell.load
    return contenders
