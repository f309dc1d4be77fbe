"""A run for an OpenTelemetry collector: every trial as a span, figures of valid ones as gauges."""

import json
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from report.make_run import KINDS, make_run
from typer.testing import CliRunner

from wirespeed.analysis.summary import load
from wirespeed.cli.app import app
from wirespeed.errors import InputError, RunError
from wirespeed.report import otlp


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return make_run(KINDS["quickstart"](), tmp_path_factory.mktemp("runs"))


@pytest.fixture
def collector(monkeypatch):
    """(address, what it got, the answers that it gives)."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    got, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            status, text = answers.pop(0) if answers else (200, "{}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got, answers
    server.shutdown()
    thread.join()
    server.server_close()


def told(attributes):
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}


def test_a_share_has_the_unit_of_a_share(run_dir):
    """−0.012 went out as −0.012 %."""
    summary = load(run_dir)
    trial = replace(summary.valid[0], metrics={"little_residual": -0.012, "load.headroom": 2.0})
    gauges = otlp.metrics(summary, [trial])["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    assert {one["name"]: one["unit"] for one in gauges} == {
        "wirespeed.little_residual": "1", "wirespeed.load.headroom": "1",
    }  # fmt: skip


def test_each_trial_is_a_span_and_valid_ones_have_their_figures(run_dir, collector, monkeypatch):
    address, got, _ = collector
    monkeypatch.setattr(otlp, "TRIALS_AT_ONCE", 60)
    done = CliRunner().invoke(app, ["report", str(run_dir), "--otlp", f"{address}/"])
    assert done.exit_code == 0, done.output
    assert {kind for _, kind, _ in got} == {"application/json"}
    summary = load(run_dir)
    spans = [
        span
        for path, _, document in got if path == "/v1/traces"
        for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]  # fmt: skip
    run, *trials = spans
    assert len(trials) == len(summary.valid) + len(summary.invalid) > 60
    assert {span["parentSpanId"] for span in trials} == {run["spanId"]}
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert {len(span["spanId"]) for span in spans} == {16} and len(run["traceId"]) == 32
    failed = [span for span in trials if span["status"]["code"] == otlp.STATUS_ERROR]
    assert len(failed) == len(summary.invalid) > 0
    first = summary.valid[0]
    own = next(span for span in trials if span["name"] == f"trial {first.position}")
    assert int(own["startTimeUnixNano"]) == first.window.start_unix_ns
    assert told(own["attributes"])["wirespeed.connections"] == str(first.axes["connections"])
    rps = [
        point
        for path, _, document in got if path == "/v1/metrics"
        for metric in document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        if metric["name"] == "wirespeed.rps"
        for point in metric["gauge"]["dataPoints"]
    ]  # fmt: skip
    assert sorted(point["asDouble"] for point in rps) == sorted(
        trial.metrics["rps"] for trial in summary.valid
    )
    resource = got[0][2]["resourceSpans"][0]["resource"]
    assert told(resource["attributes"])["wirespeed.run"] == summary.run.run_id


def test_what_a_collector_refuses_is_one_line(run_dir, collector):
    address, _, answers = collector
    summary, to = load(run_dir), otlp.collector(address)
    answers.append((404, ""))
    line = r"^--otlp: http://127[^ /]+ responds to /v1/traces with 404 \(is it"
    with pytest.raises(RunError, match=line):
        otlp.send(summary, to)
    answers.append((200, '{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too\\nold"}}'))
    with pytest.raises(RunError, match=r"rejected 3 of /v1/traces: too old$"):
        otlp.send(summary, to)
    answers.append((200, "<html>"))
    with pytest.raises(RunError, match="is a collector listening there"):
        otlp.send(summary, to)


@pytest.mark.parametrize(
    "answer", ["null", "[]", '{"partialSuccess": null}', '{"partialSuccess": {"rejectedSpans": 0}}']
)
def test_every_way_to_refuse_nothing_is_none(run_dir, collector, answer):
    address, got, answers = collector
    answers += [(200, answer)] * 2
    otlp.send(load(run_dir), otlp.collector(address))
    assert len(got) >= 2 and not answers


@pytest.fixture
def grpc_address():
    """A port that answers HTTP/1 as servers of gRPC do: with a frame of HTTP/2."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.recv(1 << 16)
                peer.sendall(b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0\r\n")
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def test_a_port_of_another_protocol_is_one_line(run_dir, grpc_address, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(RunError) as caught:
        otlp.send(load(run_dir), otlp.collector(grpc_address))
    line = f"--otlp: {grpc_address}: no HTTP/1 response: BadStatusLine (is it a port for gRPC?)"
    assert str(caught.value) == line


def test_a_collector_that_is_not_there_costs_neither_ci_files_nor_the_gate(
    run_dir, tmp_path, monkeypatch
):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    words = ["report", str(run_dir), "--otlp", "http://127.0.0.1:1/secret", "--ci", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1 and any(tmp_path.iterdir())
    assert done.stderr.startswith("wirespeed: --otlp: http://127.0.0.1:1: ")
    assert "Connection refused" in done.stderr and "secret" not in done.stderr
    done = CliRunner().invoke(app, [*words, "--require", "rps > 1G"])
    assert done.exit_code == 3
    assert "rps > 1G" in done.stderr and "Connection refused" in done.stderr


@pytest.mark.parametrize(
    "address",
    ["localhost:4318", "file:///etc/passwd", "http://", "http://[::1", "http://host:http",
     "http://host:99999", "http://ho st/", "http://host/a\tb"],
)  # fmt: skip
def test_an_address_that_is_none_is_bad_input(address):
    with pytest.raises(InputError, match=r"^--otlp: not an address \(such as"):
        otlp.collector(address)


@pytest.mark.parametrize("address", ["http://me:word@host/", "http://h/?key=1", "http://h/#a"])
def test_an_address_holds_no_secret_that_would_not_be_used(address):
    with pytest.raises(InputError, match=r"^--otlp: the address has a user, query or fragment"):
        otlp.collector(address)


def test_the_rest_of_an_address_is_kept_and_its_path_not_shown():
    found = otlp.collector("https://[::1]:4318/otlp/")
    assert found == otlp.Collector("https://[::1]:4318/otlp", "https://[::1]:4318")
    assert otlp.collector("http://host").url == "http://host"
