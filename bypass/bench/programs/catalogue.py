"""The programs: how each is started, what is asked of it, and which packages it comes from.

An entry's function is a generator of answers: texts that must be the same on the kernel and accelerated,
so without dates, ports, process numbers and times.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import databases
import languages
import mail_and_files
import messages
import web


@dataclass(frozen=True)
class Entry:
    """A program of the table."""

    run: Callable
    packages: tuple
    driven_by: str
    version_of: tuple = field(default=())
    why_kernel: str = ""

    def version(self):
        """Of Debian's package, or what a command says."""
        if self.version_of:
            done = subprocess.run(self.version_of, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            words = done.stdout.decode("utf-8", "replace").split("\n")[0].split()
            return next((word for word in words if any(c.isdigit() for c in word)), "")
        shown = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", self.packages[0]],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return shown.stdout.decode().split(":")[-1].split("-")[0].split("+")[0]


PYTHON = (sys.executable, "--version")
GO = "Go makes system calls without libc"
ALL = {
    "nginx": Entry(web.nginx, ("nginx",), "curl, ab"),
    "php-fpm": Entry(web.php_fpm, ("php8.2-fpm", "nginx"), "nginx (FastCGI), curl, ab"),
    "apache-prefork": Entry(web.apache_prefork, ("apache2",), "curl, ab"),
    "apache-worker": Entry(web.apache_worker, ("apache2",), "curl, ab"),
    "apache-event": Entry(web.apache_event, ("apache2",), "curl, ab"),
    "lighttpd": Entry(web.lighttpd, ("lighttpd",), "curl, ab"),
    "haproxy": Entry(web.haproxy, ("haproxy", "nginx"), "curl, ab, through it to nginx"),
    "varnish": Entry(web.varnish, ("varnish", "nginx"), "curl, ab, through it to nginx"),
    "squid": Entry(web.squid, ("squid", "nginx"), "curl as a proxy's client"),
    "tinyproxy": Entry(web.tinyproxy, ("tinyproxy", "nginx"), "curl as a proxy's client"),
    "dante": Entry(web.dante, ("dante-server", "nginx"), "curl with SOCKS 5 and 4"),
    "stunnel": Entry(web.stunnel, ("stunnel4", "nginx"), "curl with TLS"),
    "nghttpd": Entry(web.nghttpd, ("nghttp2-server", "nghttp2-client"), "curl and nghttp, HTTP/2"),
    "redis": Entry(databases.redis, ("redis-server",), "redis-cli, redis-benchmark"),
    "memcached": Entry(databases.memcached, ("memcached",), "a Python client, text protocol"),
    "mariadb": Entry(databases.mariadb, ("mariadb-server",), "mariadb, mariadb-slap"),
    "postgresql": Entry(databases.postgresql, ("postgresql-15",), "psql, pgbench"),
    "pgbouncer": Entry(databases.pgbouncer, ("pgbouncer", "postgresql-15"), "psql, through it"),
    "mosquitto": Entry(messages.mosquitto, ("mosquitto", "mosquitto-clients"), "mosquitto_pub, mosquitto_sub"),
    "beanstalkd": Entry(messages.beanstalkd, ("beanstalkd",), "a Python client"),
    "nats": Entry(messages.nats, ("nats-server",), "a Python client", (), GO),
    "iperf3": Entry(messages.iperf3, ("iperf3",), "iperf3, four streams, both directions"),
    "socat": Entry(messages.socat, ("socat",), "socat, 2 MB there and back"),
    "ncat": Entry(messages.ncat, ("ncat",), "ncat, 2 MB one way"),
    "rsync": Entry(mail_and_files.rsync, ("rsync",), "rsync, pull and push"),
    "sshd": Entry(mail_and_files.sshd, ("openssh-server",), "ssh, scp, sftp"),
    "vsftpd": Entry(mail_and_files.vsftpd, ("vsftpd",), "curl, passive and active"),
    "exim": Entry(mail_and_files.exim, ("exim4-daemon-light",), "smtplib"),
    "dovecot": Entry(mail_and_files.dovecot, ("dovecot-imapd",), "imaplib"),
    "python-http-server": Entry(languages.python_http, ("python3",), "curl, wget, ab", PYTHON),
    "gunicorn-sync": Entry(languages.gunicorn_sync, ("python3",), "curl, ab", PYTHON),
    "gunicorn-gthread": Entry(languages.gunicorn_gthread, ("python3",), "curl, ab", PYTHON),
    "uvicorn-asyncio": Entry(languages.uvicorn_asyncio, ("python3",), "curl, ab", PYTHON),
    "uvicorn-uvloop": Entry(languages.uvicorn_uvloop, ("python3",), "curl, ab", PYTHON),
    "aiohttp": Entry(languages.aiohttp, ("python3",), "curl, ab", PYTHON),
    "node": Entry(languages.node, ("nodejs",), "curl, ab", ("node", "--version")),
    "go": Entry(languages.go, ("golang",), "curl, ab", ("go", "version"), GO),
    "tokio": Entry(languages.tokio, ("cargo",), "curl, ab; an own client on tokio", ("rustc", "--version")),
    "java": Entry(languages.java, ("default-jdk-headless",), "curl, ab", ("java", "--version")),
    "puma": Entry(languages.puma, ("puma",), "curl, ab"),
    "starman": Entry(languages.starman, ("starman",), "curl, ab, LWP"),
    "erlang": Entry(languages.erlang, ("erlang-inets",), "curl, ab"),
}


#: Debian asks it before it starts a service. The mark is that of the front door, which removes what a killed process left.
POLICY = Path("/usr/sbin/policy-rc.d")
NO_STARTS = "#!/bin/sh\n# of wirespeed while it installs, process {process}\nexit 101\n"


@contextmanager
def no_service_starts():
    """A policy of the machine's own stays as it is."""
    is_ours = not POLICY.exists()
    if is_ours:
        POLICY.write_text(NO_STARTS.format(process=os.getpid()))
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if is_ours:
            POLICY.unlink(missing_ok=True)


def install(names):
    """Debian's packages of these programs; services that they bring are not started."""
    own = {"python3", "cargo", "golang", "nodejs", "default-jdk-headless"}
    packages = {package for name in names for package in ALL[name].packages} - own
    with no_service_starts():
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "apache2-utils", "curl", "wget",
                        *sorted(packages)], check=True, env={"DEBIAN_FRONTEND": "noninteractive",
                                                             "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
