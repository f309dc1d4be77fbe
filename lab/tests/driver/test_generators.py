"""The contract of the installed load generators, and their recorded outputs.

The texts below were printed by the tools themselves (nginx with a body of 128 bytes on loopback).
"""

import http.server
import json
import math
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from wirespeed.driver import command
from wirespeed.driver.base import LoadRun
from wirespeed.driver.generator import Output
from wirespeed.errors import ProcessError
from wirespeed.recipe.model import OwnFigures
from wirespeed.recipe.resolve import Instance
from wirespeed.topology import Seat

OUTPUTS = Path(__file__).parent / "outputs"
CONNECTIONS = 4
#: Options for four connections in a closed loop, before the address.
CLOSED = {
    "wrk": ["-t", "1", "-c", "4", "--timeout", "60s"],  # else a pause of 2 s is an error
    "h2load": ["--h1", "-t", "1", "-c", "4"],
    "ab": ["-k", "-c", "4"],
    "oha": ["-c", "4"],
    "vegeta": ["-rate", "0", "-max-workers", "4", "-workers", "4"],
    "k6": ["--vus", "4"],
}
K6_SCRIPT = """import http from "k6/http";
export default function () { http.get(__ENV.TARGET); }
"""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"x" * 128
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(body)))
        if self.request_version == "HTTP/1.0":  # ab asks so, and keeps what is said to be kept
            self.send_header("Connection", "keep-alive")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    server = Server(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def instance(tool, argv, figures=None):
    seats = [Seat("here", 1)]
    return Instance("gen", 0, "load", tool, argv, seats, None, "", {}, {}, None, {}, {},
                    figures=figures)  # fmt: skip


def words_of(tool, url, folder):
    """The recipe's arguments; k6 reads its test from a script."""
    if tool != "k6":
        return [*CLOSED[tool], url]
    (folder / "script.js").write_text(K6_SCRIPT)
    return [*CLOSED[tool], "-e", f"TARGET={url}", str(folder / "script.js")]


def asked(tool, url, folder, duration_s=1.0):
    """Starts the tool as the lab does and reads it as the lab does."""
    one = instance(tool, words_of(tool, url, folder))
    run = LoadRun(folder, duration_s, 0.0, 0.0)
    made = command.for_load(Path("/nowhere"), one, run)
    done = subprocess.run(made.argv, capture_output=True, text=True, check=False, timeout=180)
    (folder / "stdout").write_text(done.stdout)
    return command.figures_of(one, run, Output(folder / "stdout", done.stderr, 7, int(600e9)))


@pytest.fixture(params=sorted(CLOSED))
def tool(request):
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    return request.param


def test_a_generator_reports_rate_bytes_window_and_latency(tool, address, tmp_path):
    found = asked(tool, f"{address}/", tmp_path)
    assert found.completed > 0 and found.rps > 0
    assert found.rps == pytest.approx(found.completed / found.window.length_ns * 1e9, rel=0.15)
    assert found.bytes_per_second >= 0.9 * 128 * found.rps
    assert found.window.start_unix_ns == 7
    # A busy machine ends it late; the end that `asked` gives is ten times later still.
    assert 0.9e9 <= found.window.length_ns <= 60e9
    assert (found.errors, found.non_2xx, found.timeouts) == (0, 0, 0)
    assert (found.connections, found.closed_loop) == (CONNECTIONS, True)
    latency = found.latency["service"]
    assert 0 < latency.mean_ns <= latency.max_ns
    assert math.isfinite(found.little_residual)


def test_a_generator_counts_unsuccessful_responses(tool, address, tmp_path):
    found = asked(tool, f"{address}/missing", tmp_path)
    assert found.non_2xx >= 0.9 * found.rps * found.window.length_ns / 1e9 > 0


def test_a_generator_without_a_server_gives_no_rate(tool, tmp_path):
    try:
        found = asked(tool, "http://127.0.0.1:1/", tmp_path)
    except ProcessError as error:
        assert str(error).startswith("gen-0: ")
        return
    assert found.completed == 0


def read(tool, argv, text, folder, figures=None, words=""):
    (folder / "stdout").write_text(text)
    one = instance(tool, argv, figures)
    run = LoadRun(folder, 2.0, 0.0, 0.0)
    driver = command.generator(one)
    driver.command(Path("/nowhere"), one, run)
    return driver.read(one, run, Output(folder / "stdout", words, 7, 7 + int(run.duration_s * 1e9)))


@pytest.mark.parametrize("tool", sorted(command.GENERATORS))
def test_no_output_is_one_line_with_the_tools_last_words(tool, tmp_path):
    with pytest.raises(ProcessError) as caught:
        read(tool, ["http://127.0.0.1:1/"], "", tmp_path, words="cannot connect")
    assert str(caught.value).startswith("gen-0") and "\n" not in str(caught.value)


def test_colours_of_a_tool_are_not_in_the_reason(tmp_path):
    said = "\x1b[31munable to connect\x1b[0m\n\x1b[0m\n"
    with pytest.raises(ProcessError) as caught:
        read("wrk", ["http://127.0.0.1:1/"], said, tmp_path)
    assert str(caught.value).endswith("printed no result: unable to connect")


@pytest.mark.parametrize(
    ("tool", "option"),
    [("wrk", "-d"), ("wrk2", "-d"), ("h2load", "-D"), ("ab", "-t"), ("oha", "-z"),
     ("k6", "--duration"), ("vegeta", "-duration")],
)  # fmt: skip
def test_the_plans_window_is_put_in_where_it_is_left_out(tool, option, tmp_path):
    run = LoadRun(tmp_path, 2.0, 0.0, 0.0)
    argv = command.for_load(Path("/nowhere"), instance(tool, ["u"]), run).argv
    assert argv[argv.index(option) + 1] in ("2s", "2")
    given = {"k6": "-d", "vegeta": "-duration"}.get(tool, option)
    argv = command.for_load(Path("/nowhere"), instance(tool, [given, "3s", "u"]), run).argv
    assert argv.count(given) == 1 and argv[argv.index(given) + 1] == "3s"


def test_wrk2_keeps_a_rate_and_counts_from_the_intended_time(tmp_path):
    text = (OUTPUTS / "wrk2.txt").read_text()
    found = read("wrk2", ["-c", "10", "-R", "2k", "http://x/"], text, tmp_path)
    assert not found.closed_loop and found.little_residual is None
    assert found.due == pytest.approx(4000, rel=0.01)
    latency = found.latency["response"]
    assert 0 < latency.quantiles_ns[0.5] <= latency.quantiles_ns[0.999] <= latency.max_ns


OHA = {  # in the form that oha 1.x writes; this one was not printed by it
    "summary": {"successRate": 1.0, "total": 2.0, "slowest": 0.004, "fastest": 0.0001,
                "average": 0.0005, "requestsPerSec": 4002.0, "totalData": 1024000,
                "sizePerRequest": 128, "sizePerSec": 512000.0},
    "latencyPercentiles": {"p50": 0.0004, "p99": 0.002, "p99.9": 0.003, "p99.99": None},
    "statusCodeDistribution": {"200": 7990, "503": 10},
    "errorDistribution": {"aborted due to deadline": 4, "timeout": 1},
}  # fmt: skip


def test_oha_is_read_from_its_json_and_requests_cut_off_do_not_count_as_errors(tmp_path):
    found = read("oha", ["-c", "4", "u"], json.dumps(OHA), tmp_path)
    assert (found.rps, found.completed, found.bytes_per_second) == (4000, 8000, 512000)
    assert (found.errors, found.timeouts, found.non_2xx) == (1, 1, 10)
    assert found.little_residual == pytest.approx(0.0005 / (4 / 4000) - 1)
    quantiles = found.latency["service"].quantiles_ns
    assert (quantiles[0.99], quantiles[0.999], quantiles[0.9999]) == (2e6, 3e6, None)
    found = read("oha", ["-q", "5000", "-c", "4", "u"], json.dumps(OHA), tmp_path)
    assert (found.closed_loop, found.due, found.sent) == (False, 10_000, 8000)
    assert "response" in found.latency


def test_k6_is_read_from_the_summary_that_it_exports(tmp_path):
    summary = json.loads((OUTPUTS / "k6.json").read_text())
    (tmp_path / "k6-gen-0.json").write_text(json.dumps(summary))
    found = read("k6", ["--vus", "4", "s.js"], "", tmp_path)
    assert found.completed == summary["metrics"]["http_reqs"]["count"]
    assert (found.connections, found.closed_loop, found.non_2xx) == (4, True, 0)
    assert 0 < found.latency["service"].quantiles_ns[0.5] < found.latency["service"].max_ns
    found = read("k6", ["s.js"], "", tmp_path)
    assert not found.closed_loop, "a script's scenarios may keep a rate"


def test_vegeta_sends_at_a_rate_and_is_read_by_its_own_report(tmp_path, monkeypatch):
    fake = tmp_path / "bin" / "vegeta"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\ncat {OUTPUTS / 'vegeta.json'}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    found = read("vegeta", ["-rate", "500/1s", "http://x/"], "", tmp_path)
    data = json.loads((OUTPUTS / "vegeta.json").read_text())
    assert found.completed == data["requests"] and not found.closed_loop
    assert found.due == pytest.approx(data["requests"], rel=0.01)
    assert found.latency["response"].quantiles_ns[0.99] == data["latencies"]["99th"]
    assert (tmp_path / "vegeta-gen-0.targets").read_text() == "GET http://x/\n"


PGBENCH = """pgbench (15.14 (Debian 15.14-0+deb12u1))
progress: 1.0 s, 700.0 tps, lat 5.6 ms stddev 1.1, 0 failed
number of transactions actually processed: 15423
number of failed transactions: 0 (0.000%)
latency average = 1.296 ms
tps = 7712.345678 (without initial connection time)
"""


def test_a_tool_of_ones_own_is_read_by_patterns(tmp_path):
    wanted = OwnFigures(
        text={
            "rps": r"^tps = ([\d.]+)",
            "completed": r"actually processed: (\d+)",
            "errors": r"failed transactions: (\d+)",
            "mean": r"latency average = ([\d.]+) ms",
        }
    )
    found = read("command", ["pgbench"], PGBENCH, tmp_path, wanted)
    assert (found.rps, found.completed, found.errors) == (7712.345678, 15423, 0)
    assert found.latency["service"].mean_ns == pytest.approx(1.296e6)
    with pytest.raises(ProcessError, match=r"gen-0: its output has nothing like .*\(rps\)"):
        read("command", ["pgbench"], "FATAL: no database\n", tmp_path, wanted)


@pytest.mark.parametrize(
    ("told", "lived_s", "seconds"),
    [
        ({}, 0.5, 0.5),  # it counted requests and was done before the window was
        ({}, 2.6, 2.0),  # it took a while to start and to end
        ({"completed": "c"}, 0.9, 0.25),
        ({"completed": "c", "seconds": "s"}, 0.9, 0.3),
    ],
)
def test_the_window_of_a_tool_of_ones_own_is_as_long_as_it_worked(told, lived_s, seconds, tmp_path):
    """The server's CPU time and the requests are those of the same period."""
    wanted = OwnFigures.model_validate({"json": {"rps": "r", **told}})
    (tmp_path / "stdout").write_text(json.dumps({"r": 100, "c": 25, "s": 0.3}))
    one = instance("command", ["mine"], wanted)
    output = Output(tmp_path / "stdout", "", 7, 7 + int(lived_s * 1e9))
    found = command.generator(one).read(one, LoadRun(tmp_path, 2.0, 0.0, 0.0), output)
    assert found.window.length_ns == pytest.approx(seconds * 1e9)


def test_a_tool_of_ones_own_is_read_by_paths_into_its_json(tmp_path):
    wanted = OwnFigures.model_validate({
        "json": {"rps": "summary.rate", "p99": "lat.p(99.9)", "mean": "list.1", "connections": "c"},
        "unit": "us",
    })  # fmt: skip
    data = {"summary": {"rate": 10.5}, "lat": {"p(99.9)": 30}, "list": [1, 2], "c": "4"}
    text = f"a banner\n{json.dumps(data)}\n"
    found = read("command", ["mine"], text, tmp_path, wanted)
    assert (found.rps, found.completed, found.connections) == (10.5, 21, 4)
    assert found.latency["service"].mean_ns == 2000
    assert found.latency["service"].quantiles_ns[0.99] == 30_000
    del data["lat"]
    with pytest.raises(ProcessError, match=r"its JSON has no number at 'lat\.p\(99\.9\)' \(p99\)"):
        read("command", ["mine"], json.dumps(data), tmp_path, wanted)


def test_a_decimal_comma_of_a_tool_is_refused_and_not_left_out(tmp_path):
    """ "12,5 requests/s" were 125."""
    wanted = OwnFigures(text={"rps": r"^tps = (\S+)"})
    assert read("command", ["mine"], "tps = 1,234.5\n", tmp_path, wanted).rps == 1234.5
    with pytest.raises(ProcessError, match=r"gen-0: '12,5' is not a number .*\(rps\)"):
        read("command", ["mine"], "tps = 12,5\n", tmp_path, wanted)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", '"nan"', "1e999"])
def test_a_figure_of_a_tool_of_ones_own_is_a_finite_number(tmp_path, value):
    """NaN, which tools print where nothing was answered, ended the run in a traceback."""
    wanted = OwnFigures.model_validate({"json": {"rps": "rate"}})
    with pytest.raises(ProcessError, match=r"is not a finite number \(rps\)"):
        read("command", ["mine"], f'{{"rate": {value}}}', tmp_path, wanted)


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("wrk", "1 requests in 1.2.3s\nRequests/sec: 1.2.3\n"),
        ("oha", json.dumps({**OHA, "statusCodeDistribution": ["200"]})),
        ("oha", json.dumps({**OHA, "latencyPercentiles": {"median": 1}})),
    ],
)
def test_results_of_another_version_of_a_tool_fail_the_trial_and_not_the_run(tmp_path, tool, text):
    (tmp_path / "stdout").write_text(text)
    run, output = LoadRun(tmp_path, 2.0, 0.0, 0.0), Output(tmp_path / "stdout", "", 7, int(2e9))
    with pytest.raises(ProcessError, match=r"^gen-0: ") as failed:
        command.figures_of(instance(tool, ["-c", "1", "u"]), run, output)
    assert "\n" not in str(failed.value)
