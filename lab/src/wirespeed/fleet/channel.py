"""A channel to one agent: a program whose standard input and output carry newline JSON.

Every kind of host is one command line in front of the same Python: nothing for this machine,
`nsenter` for a namespace, `ssh` for another host, `srun` for a host of a scheduler.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wirespeed.errors import HostError, LostHostError

MODULES = (
    "clock", "children", "helpers", "census", "quota", "counters", "sampling", "files", "facts",
    "switches", "tuning", "leftovers", "namespaces", "ready", "links", "duet", "main",
)  # fmt: skip
MARKER = b"wirespeed-agent "
GREETING_BYTES_MAX = 1 << 16  # what a login shell may print before the agent speaks
LAST_WORDS_BYTES_MAX = 1 << 20
LAST_WORDS_S = 5.0  # between the end of a program's output and its own
KEEPS_A_LEASE = 5  # signs of life within one lease

# Installs the sources as modules, so that they import each other there as in the package. The order
# comes first, with its length, so that nothing has to be read byte by byte.
PYTHON_LEAST = (3, 9)
BOOTSTRAP = (
    "import sys\n"
    f"sys.version_info>={PYTHON_LEAST} or sys.exit("
    f"'Python %d.%d is too old for the agent, which needs {PYTHON_LEAST[0]}.{PYTHON_LEAST[1]} or"
    " later (name another one as python of the site)'%sys.version_info[:2])\n"
    "import json,os,types,zlib\n"
    "def take(n):\n"
    ' b=b""\n'
    " while len(b)<n:b+=os.read(0,n-len(b)) or sys.exit(0)\n"
    " return b\n"
    "o=json.loads(zlib.decompress(take(int(take(10)))).decode())\n"
    'for n in ("wirespeed","wirespeed.agent"):sys.modules[n]=types.ModuleType(n)\n'
    'for n,s in o["modules"]:\n'
    " m=sys.modules[n]=types.ModuleType(n)\n"
    ' setattr(sys.modules["wirespeed.agent"],n.rpartition(".")[2],m)\n'
    ' exec(compile(s,n,"exec"),m.__dict__)\n'
    'sys.modules["wirespeed.agent.main"].main(o)\n'
)


@dataclass(frozen=True)
class Transport:
    """How one host is reached."""

    name: str
    prefix: tuple[str, ...] = ()  # in front of the Python
    python: str = "python3"
    is_quoted: bool = False  # the prefix hands its words to a shell, as ssh does
    lease_s: float | None = None  # None where the end of a pipe is noticed at once
    shares_files: bool = True  # the agent sees the files of this machine
    has_own_network: bool = False  # settings of the network are the namespace's own
    is_seat: bool = True  # False: it looks after the machine only; nothing measured runs there

    def argv(self) -> list[str]:
        command = [self.python, "-I", "-S", "-u", "-c", BOOTSTRAP]
        if self.is_quoted:
            command[-1] = _one_line(BOOTSTRAP)
            command = ["exec " + " ".join(_quoted(word) for word in command)]
        return [*self.prefix, *command]


def _one_line(program: str) -> str:
    """The same in one line of plain characters: csh takes no line end within quotes, nor `!`."""
    packed = base64.b64encode(zlib.compress(program.encode())).decode()
    return f'import base64,zlib;exec(zlib.decompress(base64.b64decode("{packed}")))'


def _quoted(word: str) -> str:
    """For any shell: single quotes, around words of one line."""
    import shlex

    return shlex.quote(word)


class Channel:
    """The running program, its pipes, and the signs of life that keep the agent's lease."""

    def __init__(self, far: Transport, order: dict[str, Any]) -> None:
        self.name = far.name
        self._buffer = b""
        self._is_greeted = False
        self._write_lock = threading.Lock()
        # In memory: a full disk must not keep a run from saying that the disk is full.
        self._complaints = os.fdopen(os.memfd_create("wirespeed-agent"), "w+b")
        try:
            # A session of its own: Ctrl-C in the terminal is for the lab, which notifies the agent.
            self.process = subprocess.Popen(
                far.argv(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"{far.name}: {far.argv()[0]}: {error.strerror}") from None
        assert self.process.stdout
        self.fd = self.process.stdout.fileno()
        self._closing = threading.Event()
        self._write(_packed({"modules": _sources(), "lease_s": far.lease_s, **order}))
        if far.lease_s:
            pause_s = far.lease_s / KEEPS_A_LEASE
            threading.Thread(target=self._keep, args=(pause_s,), daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        self._write((json.dumps(message) + "\n").encode())

    def _write(self, data: bytes) -> None:
        assert self.process.stdin
        try:
            with self._write_lock:
                self.process.stdin.write(data)
                self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise LostHostError(f"{self.name}: {self.last_words()}") from None

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come; to be called when the descriptor is readable."""
        data = os.read(self.fd, 1 << 20)
        if not data:
            raise LostHostError(f"{self.name}: {self.last_words()}")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        messages = []
        for line in lines:
            if self._is_greeted:
                messages.append(self._message(line))
            else:
                self._is_greeted = line.startswith(MARKER)
        if not self._is_greeted and len(self._buffer) > GREETING_BYTES_MAX:
            raise HostError(f"{self.name}: something else than Python answers there")
        return messages

    def _message(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            return message
        words = line[:80].decode(errors="replace").strip()
        raise LostHostError(
            f"{self.name}: something writes between the agent's answers, as a start-up file of the "
            f"shell there may: {words}"
        )

    def last_words(self) -> str:
        """Why the program ended, as it said itself."""
        try:
            self.process.wait(timeout=LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            pass
        # Not by seeking: the program has the same offset, and would write over what it wrote.
        handle = self._complaints.fileno()
        start = max(0, os.fstat(handle).st_size - LAST_WORDS_BYTES_MAX)
        text = os.pread(handle, LAST_WORDS_BYTES_MAX, start)
        lines = text.decode(errors="replace").strip().splitlines()
        if lines:
            return lines[-1].strip()
        return "the agent has ended; nothing it started is left running"

    def close(self) -> None:
        """Ends the input; the agent then kills whatever is left. Does not wait."""
        self._closing.set()
        if self.process.stdin and not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except (BrokenPipeError, OSError):
                pass

    def wait(self, timeout_s: float) -> None:
        try:
            self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        self._complaints.close()

    def _keep(self, pause_s: float) -> None:
        assert self.process.stdin
        while not self._closing.wait(pause_s):
            try:
                with self._write_lock:
                    self.process.stdin.write(b'{"op": "keep"}\n')
                    self.process.stdin.flush()
            except (OSError, ValueError):  # it has ended, or is being closed right now
                return


@cache
def _sources() -> list[list[str]]:
    """The agent's modules, in the order in which they need each other."""
    folder = Path(__file__).parent.parent / "agent"
    return [
        [f"wirespeed.agent.{name}", (folder / f"{name}.py").read_text(encoding="utf-8")]
        for name in MODULES
    ]


def _packed(order: dict[str, Any]) -> bytes:
    """Ten digits of length, then the compressed order."""
    data = zlib.compress(json.dumps(order).encode())
    return b"%10d" % len(data) + data
