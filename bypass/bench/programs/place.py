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


class Failed(Exception):
    """A server that did not start, or a client that did not end."""


class Place:
    """Starts servers and clients as the way of the run says ("kernel", "both", "server")."""

    def __init__(self, folder, work, bypass, profile, way):
        self.folder, self.work, self.way = folder, work, way
        self._bypass, self._profile = bypass, profile
        self._servers = []

    def write(self, name, text):
        """A file in the folder, for everybody to read; its path."""
        path = self.folder / name
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
        command = self._command(words, self.way != "kernel")
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
        return self._client(words, self.way == "both", **options)

    def plainly(self, words, **options):
        """The same, never accelerated: for what prepares a run."""
        return self._client(words, False, **options)

    def _client(self, words, accelerated, **options):
        options = {"cwd": self.folder, "input": b"", "timeout": CLIENT_SECONDS, **options}
        options["env"] = {**os.environ, **SHARE, **options.get("env", {})}
        command = self._command(words, accelerated)
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        except subprocess.TimeoutExpired:
            raise Failed(f"hangs: {' '.join(str(word) for word in words)[:120]}") from None
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode:
            errors = done.stderr.decode("utf-8", "replace").strip()[-200:]
            text += f"\nended with {done.returncode}: {errors}"
        return text

    def _command(self, words, accelerated):
        words = [str(word) for word in words]
        if not accelerated:
            return words
        profile = ["-p", self._profile] if self._profile else []
        return [str(self._bypass), "run", *profile, "--", *words]

    def counted(self):
        """What `bypass stat` says of this namespace's processes."""
        if self.way == "kernel":
            return {"shared": 0, "reasons": {}}
        done = subprocess.run([str(self._bypass), "stat", "--json"], stdout=subprocess.PIPE)
        shared, reasons = 0, {}
        for process in json.loads(done.stdout or b"{}").get("processes", []):
            if not os.path.exists(f"/proc/{process['pid']}"):
                continue
            shared += process["counters"]["accepts_shm"]
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
    """Whether anything listens on a TCP port of this namespace; asks nobody."""
    wanted = f":{port:04X}"
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name) as rows:
            if any(row.split()[1].endswith(wanted) and row.split()[3] == "0A"
                   for row in list(rows)[1:]):
                return True
    return False


def digest(data):
    """A short name of many bytes."""
    data = data if isinstance(data, bytes) else data.encode()
    return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:16]}"
