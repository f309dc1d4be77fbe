"""Where one program runs: its folder, its servers, its clients, and what is known of them."""

import hashlib
import json
import os
import pwd
import signal
import subprocess
import time

START_SECONDS = 40
CLIENT_SECONDS = 60
LOG_CHARACTERS = 300
# Many servers give up root's rights, and their clients here keep them.
SHARE = {"EF_SHARE_WITH": "-1"}
# Between hosts: the server's interface and address, and the client's.
INTERFACES = {"server": ("vb", "10.77.0.2"), "client": ("va", "10.77.0.1")}
# What a user other than root needs to open an interface.
CAPABILITIES = "+net_admin,+net_raw,+bpf,+ipc_lock"


class Failed(Exception):
    """A server that did not start, or a client that did not end."""


class Host:
    """Another network namespace, joined to this one by a veth pair; it ends with this process namespace."""

    def __init__(self):
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        here = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self._holder.pid}/ns/net") == here:
            time.sleep(0.01)
        near, far = INTERFACES["server"], INTERFACES["client"]
        self._run("ip", "link", "add", near[0], "type", "veth", "peer", "name", far[0], "netns",
                  str(self._holder.pid))
        for prefix, (name, address) in (([], near), (self.prefix(), far)):
            self._run(*prefix, "ip", "addr", "add", f"{address}/24", "dev", name)
            for link in (name, "lo"):
                self._run(*prefix, "ip", "link", "set", link, "up")

    def prefix(self):
        """What a command has before it that runs there."""
        return ["nsenter", "-t", str(self._holder.pid), "-n"]

    def connected(self):
        """Connections that the kernel opened there."""
        return opened(self._holder.pid, "ActiveOpens")

    @staticmethod
    def _run(*words):
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Place:
    """Starts servers and clients as the way of the run says ("kernel", "both", "server", "client"); with another
    host the clients run there, and what is accelerated is so over packets."""

    def __init__(self, folder, work, bypass, profile, way, host=None):
        self.folder, self.work, self.way = folder, work, way
        self._bypass, self._profile, self._host = bypass, profile, host
        self._servers = []

    def here(self, text):
        """A text of the catalogue with the server's address in place of the loopback's."""
        if not self._host:
            return text
        address = INTERFACES["server"][1]
        if isinstance(text, bytes):
            return text.replace(b"127.0.0.1", address.encode())
        return text.replace("127.0.0.1", address).replace("{127,0,0,1}", "{" + address.replace(".", ",") + "}")

    def write(self, name, text):
        """A file in the folder, for everybody to read; its path."""
        path, text = self.folder / name, self.here(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
        return path

    def give_to(self, user, name):
        """A folder that belongs to a user; its path."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)
        return path

    def server(self, words, port, **options):
        """Starts a server and waits until something listens on the port (0: until it was started)."""
        environment = {**os.environ, **SHARE, **options.pop("env", {})}
        log = open(self.folder / f"server-{len(self._servers)}.log", "wb")
        command = self._command(words, self.way in ("server", "both"), "server")
        if self._host and "user" in options:
            user = options.pop("user")
            command = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--inh-caps", CAPABILITIES,
                       "--ambient-caps", CAPABILITIES, *command]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   cwd=options.pop("cwd", self.folder), env=environment,
                                   start_new_session=True, **options)
        self._servers.append(process)
        until = time.monotonic() + START_SECONDS
        while port and not is_listening(port):
            if process.poll() not in (None, 0):
                raise Failed(f"{words[0]} ended with {process.returncode}")
            if time.monotonic() > until:
                raise Failed(f"{words[0]} does not listen on {port}")
            time.sleep(0.05)
        return process

    def client(self, words, **options):
        """What a client prints; its exit code counts too."""
        prefix = self._host.prefix() if self._host else []
        return self._client(words, self.way in ("client", "both"), prefix, **options)

    def plainly(self, words, **options):
        """The same, never accelerated: for what prepares a run."""
        return self._client(words, False, [], **options)

    def _client(self, words, accelerated, prefix, **options):
        options = {"cwd": self.folder, "input": b"", "timeout": CLIENT_SECONDS, **options}
        options["env"] = {**os.environ, **SHARE, **options.get("env", {})}
        command = [*prefix, *self._command(words, accelerated, "client")]
        try:
            done = subprocess.run(command, capture_output=True, **options)
        except subprocess.TimeoutExpired:
            raise Failed(f"hangs: {' '.join(str(word) for word in words)[:120]}") from None
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode:
            errors = done.stderr.decode("utf-8", "replace").strip()[-200:]
            text += f"\nended with {done.returncode}: {errors}"
        return text

    def _command(self, words, accelerated, side):
        words = [self.here(str(word)) for word in words]
        if not accelerated:
            return words
        profile = ["-p", self._profile] if self._profile else []
        interface = ["--interface", INTERFACES[side][0]] if self._host else []
        return [str(self._bypass), "run", *profile, *interface, "--", *words]

    def counted(self):
        """What `bypass stat` says of this namespace's processes."""
        if self.way == "kernel":
            return {"shared": 0, "reasons": {}}
        done = subprocess.run([str(self._bypass), "stat", "--json"], stdout=subprocess.PIPE)
        shared, reasons = 0, {}
        for process in json.loads(done.stdout or b"{}").get("processes", []):
            if not os.path.exists(f"/proc/{process['pid']}"):
                continue
            shared += process["counters"]["accepts_packets" if self._host else "accepts_shm"]
            for reason, count in process["fallbacks"].items():
                reasons[reason] = reasons.get(reason, 0) + count
        return {"shared": shared, "reasons": reasons}

    def logs(self):
        """The last words of the servers."""
        texts = [path.read_text(errors="replace").strip()[-LOG_CHARACTERS:]
                 for path in sorted(self.folder.glob("server-*.log"))]
        return "".join(f"; log: {text}" for text in texts if text).replace("\n", " / ")

    def end(self):
        """Ends the servers; what is left ends with the namespace."""
        for process in reversed(self._servers):
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        until = time.monotonic() + 3
        while time.monotonic() < until and any(one.poll() is None for one in self._servers):
            time.sleep(0.05)


def is_listening(port):
    """Whether anything listens on a TCP port of this namespace; without a connection."""
    wanted = f":{port:04X}"
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name) as rows:
            if any(row.split()[1].endswith(wanted) and row.split()[3] == "0A"
                   for row in list(rows)[1:]):
                return True
    return False


def opened(process="self", name="PassiveOpens"):
    """Connections that the kernel's TCP of a process's namespace has opened: PassiveOpens, or ActiveOpens."""
    with open(f"/proc/{process}/net/snmp") as rows:
        names, values = (line.split() for line in rows if line.startswith("Tcp:"))
    return int(values[names.index(name)])


def digest(data):
    """A short name of many bytes."""
    data = data if isinstance(data, bytes) else data.encode()
    return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:16]}"
