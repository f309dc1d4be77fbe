"""Runs test suites that others wrote, on the kernel and accelerated, and lists what differs.

    python3 suites.py --bypass target/release/bypass [SUITE …] [--markdown FILE] [--json FILE]

A test counts as different when it passes on the kernel, twice, and not when accelerated, twice.
Packages come from PyPI into a virtual environment below --work. Standard library only.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

import curl_matrix
import datastores
import jvm
import netty
import node

import servers

HERE = Path(__file__).resolve().parent
MINUTES_MAX_OF_MODULE = 4
RESTARTS_MAX = 12

CPYTHON = ("test.test_socket", "test.test_selectors", "test.test_ssl", "test.test_socketserver",
           "test.test_httplib", "test.test_httpservers", "test.test_epoll", "test.test_poll",
           "test.test_select", "test.test_ftplib", "test.test_poplib", "test.test_smtplib",
           "test.test_telnetlib")
TORNADO = tuple(f"tornado.test.{name}_test" for name in (
    "iostream", "tcpserver", "tcpclient", "httpserver", "simple_httpclient", "httpclient",
    "http1connection", "netutil", "websocket", "ioloop", "asyncio", "process"))
GEVENT = tuple(f"gevent.tests.test__{name}" for name in (
    "socket", "socket_close", "socket_ex", "socket_send_memoryview", "socket_timeout",
    "socket_errors", "socketpair", "server", "server_pywsgi", "pywsgi", "select", "selectors",
    "makefile_ref", "greenness", "os", "close_backend_fd"))
UVLOOP = tuple(f"tests.test_{name}" for name in (
    "tcp", "sockets", "base", "context", "regr1", "libuv_api", "aiohttp", "pipes", "process",
    "process_spawning", "signals", "unix", "runner", "dealloc", "executors", "cython"))
TWISTED = ("twisted.test.test_tcp", "twisted.internet.test.test_tcp", "twisted.test.test_iutils")


class Runner:
    """Knows how to start a command on the kernel or accelerated."""

    def __init__(self, bypass, profile, work, part=None):
        self.bypass, self.profile, self.work = Path(bypass).resolve(), profile, work
        self.part = part
        self._environment = None

    def command(self, words, accelerated):
        if not accelerated:
            return [str(word) for word in words]
        profile = ["-p", self.profile] if self.profile else []
        return [str(self.bypass), "run", *profile, "--", *(str(word) for word in words)]

    def python(self):
        """An interpreter with the packages of the suites; made on first use."""
        if self._environment is None:
            folder = self.work / "venv"
            if not (folder / "ready").exists():
                say("installing tornado, twisted, gevent, redis, pymemcache, pytest, uvloop …")
                venv.create(folder, with_pip=True)
                # Without pyhamcrest and hypothesis twisted's tests do not load.
                subprocess.run([folder / "bin" / "pip", "install", "-q", "tornado", "twisted", "pyhamcrest",
                                "hypothesis", "gevent", "redis", "pymemcache", "pytest", "uvloop",
                                "aiohttp", "pyopenssl", "service-identity", "psutil"], check=True)
                (folder / "ready").touch()
            self._environment = folder / "bin" / "python"
        return self._environment


def say(text):
    print(text, file=sys.stderr, flush=True)


def record(runner, python, module, accelerated, only=None, folder_of_tests=None):
    """Test id → outcome of one module; a hanging or crashing test is "hung" or "crashed"."""
    outcomes, texts = {}, {}
    ends = time.monotonic() + MINUTES_MAX_OF_MODULE * 60
    with tempfile.TemporaryDirectory(dir=runner.work) as folder:
        out, choice = Path(folder) / "out.jsonl", Path(folder) / "choice.json"
        for _ in range(RESTARTS_MAX):
            out.write_text("")
            choice.write_text(json.dumps({"skip": list(outcomes), "only": only}))
            words = [python, HERE / "record.py", module, out, choice,
                     *([folder_of_tests] if folder_of_tests else [])]
            ended = _run(runner.command(words, accelerated), folder, ends)
            finished = _read(out, outcomes, texts, ended)
            if finished or time.monotonic() > ends:
                break
    return outcomes, texts


def _run(command, folder, ends):
    log = open(Path(folder) / "log.txt", "wb")
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return process.wait(max(1, ends - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return None


def _read(out, outcomes, texts, ended):
    last = None
    for line in out.read_text().splitlines():
        entry = json.loads(line)
        name, outcome = entry["test"], entry["outcome"]
        if outcome == "finished":
            return True
        if outcome == "began":
            last = name
        elif outcomes.get(name) != "failed":
            outcomes[name] = outcome
            texts[name] = entry["text"]
    if last is None:
        return True  # nothing began: the module does not load, and will not the next time
    if last not in outcomes:
        outcomes[last] = "hung" if ended in (None, 1) else f"crashed ({ended})"
    return False


def compare_unittest(runner, python, modules, folder=None):
    """One row a module: counts, and the tests that differ twice; `folder` holds modules not installed."""
    rows = []
    for module in modules:
        say(f"{module} …")
        kernel, _ = record(runner, python, module, False, None, folder)
        ours, texts = record(runner, python, module, True, None, folder)
        good = {name for name, outcome in kernel.items() if outcome == "passed"}
        suspects = sorted(name for name in good if ours.get(name, "missing") != "passed")
        if suspects:
            kernel_again, _ = record(runner, python, module, False, suspects, folder)
            again, texts_again = record(runner, python, module, True, suspects, folder)
            suspects = [name for name in suspects
                        if kernel_again.get(name) == "passed" and again.get(name) != "passed"]
            texts.update(texts_again)
        rows.append({"suite": module, "tests": len(kernel), "passed_kernel": len(good),
                     "different": [{"test": name, "outcome": ours.get(name, "missing"),
                                    "text": _last_line(texts.get(name, ""))}
                                   for name in suspects]})
        say(f"  {len(good)} of {len(kernel)} pass on the kernel, {len(suspects)} differ")
    return rows


def _last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def cpython(runner):
    python = Path(sysconfig.get_path("stdlib"), "test", "test_socket.py")
    if not python.exists():
        raise SystemExit("suites: this Python has no test package; "
                         "install it with: apt-get install libpython3-testsuite")
    # Its tests of asyncio are too many for the time of one module.
    asyncio = sorted(f"test.test_asyncio.{path.stem}"
                     for path in (python.parent / "test_asyncio").glob("test_*.py"))
    return compare_unittest(runner, sys.executable, [*CPYTHON, *asyncio])


def uvloop(runner, modules=UVLOOP):
    """uvloop's tests, which only its source archive holds; the rest of that would hide what is installed."""
    python, folder = runner.python(), runner.work / "uvloop"
    if not (folder / "tests").exists():
        folder.mkdir(parents=True, exist_ok=True)
        version = subprocess.run([python, "-c", "import uvloop; print(uvloop.__version__)"], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout.strip()
        subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "uvloop", "-d", folder,
                        f"uvloop=={version}"], check=True)
        subprocess.run(["tar", "xf", next(folder.glob("*.tar.gz")), "-C", folder, "--strip-components=1",
                        "--wildcards", "*/tests/*"], check=True)
    return compare_unittest(runner, python, modules, folder)


SUITES = {
    "cpython": cpython,
    "tornado": lambda runner: compare_unittest(runner, runner.python(), TORNADO),
    "twisted": lambda runner: compare_unittest(runner, runner.python(), TWISTED),
    "gevent": lambda runner: compare_unittest(runner, runner.python(), GEVENT),
    "uvloop": uvloop,
    "curl": curl_matrix.compare,
    "redis": datastores.redis,
    "memcached": datastores.memcached,
    "netty": netty.compare,
    "redis-own": servers.redis,
    "memcached-own": servers.memcached,
    "node": node.compare,
    "jvm": jvm.compare,
}

#: Of a suite: programs that it starts, with the Debian package of each.
PROGRAMS = {
    "curl": (("nginx", "nginx"), ("haproxy", "haproxy"), ("curl", "curl")),
    "redis": (("redis-server", "redis-server"),),
    "memcached": (("memcached", "memcached"),),
    "redis-own": (("tclsh", "tcl"),),
    "memcached-own": (("perl", "perl"),),
    "node": (("node", "nodejs"),),
    "netty": (("java", "default-jdk"), ("mvn", "maven")),
    "jvm": (("java", "default-jdk"),),
}


def markdown(rows):
    lines = ["| suite | tests | pass on the kernel | differ accelerated |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['suite']} | {row['tests']} | {row['passed_kernel']} | "
                     f"{len(row['different'])} |")
    for row in rows:
        for entry in row["different"]:
            text = entry["text"].replace("|", "\\|")
            lines.append(f"\n- `{entry['test']}`: {entry['outcome']}: {text}")
    return "\n".join(lines) + "\n"


def write(rows, options):
    """Writes what was asked for, after each suite: one that cannot run takes no finished one along. The Markdown."""
    text = markdown(rows)
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return text


def missing_programs(suites):
    """Lines on programs that a suite needs and this machine has not."""
    return [f"{name} needs {program}: apt-get install {package}" for name in suites
            for program, package in PROGRAMS.get(name, ()) if not shutil.which(program)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--bypass", default="target/release/bypass")
    parser.add_argument("--profile", default="", help="a profile for the accelerated runs")
    parser.add_argument("--module", action="append", help="only these modules of the suite")
    parser.add_argument("--part", metavar="REGEX",
                        help="only these parts of suites that run file by file or class by class")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "bypass-suites")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    for name in options.suites:
        if name not in SUITES:
            parser.error(f"unknown suite {name!r} ({', '.join(SUITES)})")
    if missing := missing_programs(options.suites or SUITES):
        parser.error("; ".join(missing))
    options.work.mkdir(parents=True, exist_ok=True)
    runner = Runner(options.bypass, options.profile, options.work, options.part)
    if options.module and options.suites == ["uvloop"]:
        rows = uvloop(runner, options.module)
    elif options.module:
        python = sys.executable if options.suites == ["cpython"] else runner.python()
        rows = compare_unittest(runner, python, options.module)
    else:
        rows = []
        for name in options.suites or SUITES:
            rows += SUITES[name](runner)
            write(rows, options)
    print(write(rows, options), end="")
    return 1 if any(row["different"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
