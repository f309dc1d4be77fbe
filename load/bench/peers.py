"""The generators that compare.py runs: their command lines, and how their output is read."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Load tools that Debian does not package, where one has built them.
BUILT = Path(__file__).resolve().parents[2] / "build" / "tools" / "bin"
#: Seconds of the units that the tools print.
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "m": 60.0}
#: httperf opens one connection after the other, so its length is a number of connections. It polls
#: without end once the source ports have run out, so there are fewer than those in a run of 1 s.
HTTPERF_CONNECTIONS_PER_S = 15_000


#: What a cell may be besides plain requests for one page.
KINDS = ("close", "lua", "chunked", "tls", "urls", "vary", "dynamic")


@dataclass(frozen=True)
class Cell:
    """One kind of load."""

    name: str
    connections: int
    size: str
    kind: str = ""
    #: Streams of each connection of HTTP/2 or HTTP/3; 0 is HTTP/1.1.
    streams: int = 0
    http3: bool = False
    #: Threads of the generator.
    threads: int = 1

    @staticmethod
    def parse(name: str) -> "Cell":
        """From a name such as 50x1024, 50x0-close, 50x1024-chunked, 50x0-h3s10 or 50x0-tls-t2."""
        shape = re.fullmatch(rf"(\d+)x(\d+)(?:-({'|'.join(KINDS)}|h([23])s(\d+)))?(?:-t([12]))?", name)
        if not shape:
            raise SystemExit(f"{name}: not a cell (CONNECTIONSxBYTES, then -{', -'.join(KINDS)}, "
                             "-h2sSTREAMS or -h3sSTREAMS, then -t2)")
        cell = Cell(name, int(shape[1]), shape[2], shape[3] or "", int(shape[5] or 0), shape[4] == "3",
                    int(shape[6] or 1))
        if cell.connections < cell.threads:
            raise SystemExit(f"{name}: fewer connections than threads (each needs one)")
        return cell

    @property
    def close(self) -> bool:
        """One connection for each request."""
        return self.kind == "close"

    @property
    def script(self) -> bool:
        """With a static Lua script."""
        return self.kind == "lua"

    @property
    def paths(self) -> list[str]:
        """What is asked for, in turn."""
        if self.kind == "urls":
            return [self.size, f"other/{self.size}"]
        return [f"{self.kind}/{self.size}" if self.kind in ("chunked", "vary") else self.size]


@dataclass(frozen=True)
class Job:
    """What a tool is asked to do."""

    cell: Cell
    seconds: int
    urls: list[str]
    #: Static: sets a field.
    script: str = ""
    #: Makes a request each time.
    dynamic: str = ""

    @property
    def url(self):
        """The first of them."""
        return self.urls[0]

    @property
    def close_field(self):
        """The header that asks for one connection per request."""
        return ["-H", "Connection: close"] if self.cell.close else []


@dataclass(frozen=True)
class Tool:
    """A generator: its program, its arguments, and where its output has its figures."""

    program: str
    arguments: Callable[[Job], list | None]
    #: Requests that were answered.
    requests: str
    #: The time that it reports for these: number and unit. Tools run longer than requested,
    #: wrk by up to 100 ms, which is 10 % of a second.
    elapsed: str | None


def _wrk(job, *more):
    return [f"-t{job.cell.threads}", f"-c{job.cell.connections}", f"-d{job.seconds}s", *more,
            *job.close_field, job.url]


def _only_plain(arguments):
    """For tools that have no scripts, no HTTP/2 and one URL."""
    return lambda job: None if job.cell.kind in NOT_PLAIN or job.cell.streams else arguments(job)


NOT_PLAIN = ("lua", "dynamic", "urls")


def _streams(job, version):
    return [version, "--streams", str(job.cell.streams)] if job.cell.streams else []


def _ours(job):
    streams = _streams(job, "--http3" if job.cell.http3 else "--http2")
    script = ["-s", job.dynamic] if job.cell.kind == "dynamic" else []
    return [*_wrk(job, *streams, *_field(job), *script), *job.urls[1:]]


def _ours_by_http2(job):
    """HTTP/2 where the cell is of HTTP/3: the same server, and as many requests at once."""
    return _wrk(job, *_streams(job, "--http2")) if job.cell.http3 else None


def _ours_by_http1(job):
    return _wrk(job) if job.cell.http3 and job.cell.streams == 1 else None


def _wrk_itself(job):
    """Several URLs take a script there."""
    if job.cell.streams:
        return None
    script = ["-s", job.dynamic] if job.cell.kind in ("dynamic", "urls") else []
    return _wrk(job, *_field(job), *script)


def _h2load(job):
    if job.cell.kind in ("lua", "dynamic") or job.cell.http3:
        return None
    protocol = ["-m", str(job.cell.streams)] if job.cell.streams else ["--h1"]
    return [*protocol, f"-t{job.cell.threads}", f"-c{job.cell.connections}", f"-D{job.seconds}", *job.close_field,
            *job.urls]


def _oha(job):
    if job.cell.kind in NOT_PLAIN or (job.cell.streams and not job.cell.http3):
        return None
    is_encrypted = job.cell.kind == "tls" or job.cell.http3
    return ["--no-tui", f"-c{job.cell.connections}", f"-z{job.seconds}s",
            *(["--http-version=3", f"-p{job.cell.streams}"] if job.cell.http3 else []),
            *(["--disable-keepalive"] if job.cell.close else []),
            *(["--insecure"] if is_encrypted else []), job.url]


def _httperf(job):
    if not job.cell.close:
        return None
    host, port, path = re.fullmatch(r"http://([^:/]+):(\d+)(/.*)", job.url).groups()
    return ["--hog", f"--server={host}", f"--port={port}", f"--uri={path}",
            f"--num-conns={job.seconds * HTTPERF_CONNECTIONS_PER_S}"]


_WRK_REQUESTS, _WRK_ELAPSED = r"(\d+) requests in", r"requests in ([\d.]+)(us|ms|s|m),"

#: A field that the static script sets too, so that both send the same bytes.
SCRIPT_FIELD = ("X-Static", "1")
SCRIPT = f'wrk.headers["{SCRIPT_FIELD[0]}"] = "{SCRIPT_FIELD[1]}"\n'
#: Another request each time, as scripts make them.
DYNAMIC = """
local n = 0
function request()
  n = n + 1
  return wrk.format("GET", wrk.path .. "?n=" .. n)
end
"""


def alternating(paths):
    """A script for wrk that asks for these in turn, rendered once."""
    listed = ", ".join(f'"/{path}"' for path in paths)
    return f"""
local paths, ready, n = {{ {listed} }}, {{}}, 0
function init()
  for i, path in ipairs(paths) do ready[i] = wrk.format("GET", path) end
end
function request()
  n = n % #paths + 1
  return ready[n]
end
"""



def _field(job):
    return ["-H", ": ".join(SCRIPT_FIELD)] if job.cell.script else []


def _with_script(job):
    return _wrk(job, "-s", job.script) if job.cell.script else None


TOOLS = {
    "wirespeed-load": Tool(
        "wirespeed-load", _ours, _WRK_REQUESTS, _WRK_ELAPSED),
    "wirespeed-load --coalesce never": Tool(
        "wirespeed-load", lambda job: ["--coalesce", "never", *_ours(job)],
        _WRK_REQUESTS, _WRK_ELAPSED),
    "wirespeed-load --bodies drop": Tool(
        "wirespeed-load",
        lambda job: None if job.cell.kind == "tls" or job.cell.streams else ["--bodies", "drop", *_ours(job)],
        _WRK_REQUESTS, _WRK_ELAPSED),
    "wirespeed-load --http2": Tool("wirespeed-load", _ours_by_http2, _WRK_REQUESTS, _WRK_ELAPSED),
    "wirespeed-load --http1": Tool("wirespeed-load", _ours_by_http1, _WRK_REQUESTS, _WRK_ELAPSED),
    "wirespeed-load -s": Tool("wirespeed-load", _with_script, _WRK_REQUESTS, _WRK_ELAPSED),
    "wrk": Tool(
        "wrk", _wrk_itself, _WRK_REQUESTS, _WRK_ELAPSED),
    "wrk -s": Tool("wrk", _with_script, _WRK_REQUESTS, _WRK_ELAPSED),
    "wrk2": Tool("wrk2", _only_plain(lambda job: _wrk(job, "-R10M")), _WRK_REQUESTS, _WRK_ELAPSED),
    "h2load": Tool(
        "h2load", _h2load, r"requests: \d+ total, \d+ started, (\d+) done", r"finished in ([\d.]+)(us|ms|s|m),"),
    "ab": Tool(
        "ab", _only_plain(lambda job: [
            "-q", *([] if job.cell.close else ["-k"]), f"-c{job.cell.connections}",
            f"-t{job.seconds}", "-n100000000", job.url]),
        r"Complete requests:\s+(\d+)", r"Time taken for tests:\s+([\d.]+) (seconds)"),
    "httperf": Tool(
        "httperf", _httperf, r"replies (\d+) test-duration", r"test-duration ([\d.]+) (s)"),
    "oha": Tool(
        "oha", _oha,
        r"\[200\]\s+(\d+) responses", r"Total:\s+([\d.]+) (us|ms|secs?|s)\b"),
    "bombardier": Tool(
        "bombardier", _only_plain(lambda job: [
            "-l", f"-c{job.cell.connections}", f"-d{job.seconds}s", *job.close_field, job.url]),
        r"2xx - (\d+)", None),
    "hey": Tool(
        "hey", _only_plain(lambda job: [
            "-c", str(job.cell.connections), "-z", f"{job.seconds}s",
            *(["-disable-keepalive"] if job.cell.close else []), job.url]),
        r"\[200\]\s+(\d+) responses", r"Total:\s+([\d.]+) (secs)"),
    "fortio": Tool(
        "fortio", _only_plain(lambda job: [
            "load", "-qps=0", f"-c={job.cell.connections}", f"-t={job.seconds}s",
            *(["-keepalive=false"] if job.cell.close else []), job.url]),
        r"Code 200 : (\d+)", r"Ended after ([\d.]+)(us|ms|s|m)"),
}


def find(names, places):
    """Name → (path, tool) of the installed tools; the names of the missing ones."""
    here, absent = {}, []
    search = os.pathsep.join([os.environ.get("PATH", ""), str(BUILT)])
    for name in names:
        if name not in TOOLS:
            raise SystemExit(f"{name}: unknown tool; known are {', '.join(TOOLS)}")
        program = TOOLS[name].program
        path = shutil.which(places.get(program, program), path=search)
        if path:
            here[name] = (path, TOOLS[name])
        else:
            absent.append(name)
    return here, absent


def read(tool, output, told_s):
    """Requests and seconds from a tool's output; `told_s` if it does not report the time."""
    requests = re.search(tool.requests, output)
    elapsed = re.search(tool.elapsed, output) if tool.elapsed else None
    if not requests or (tool.elapsed and not elapsed):
        return None
    seconds = float(elapsed.group(1)) * UNITS[elapsed.group(2)] if elapsed else told_s
    return int(requests.group(1)), seconds
