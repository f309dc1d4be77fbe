"""Readiness is a real answer: status and length are looked at."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from wirespeed.agent import ready
from wirespeed.agent.ready import LogLines, request, wait


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine may need more than the usual two seconds for an answer."""
    monkeypatch.setattr(ready, "ANSWER_S", 60.0)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        status = int(self.path.strip("/").partition("?")[0] or 200)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"four")

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "length", "answered", "problem"),
    [
        ("/200", 4, True, ""),
        ("/200?x=1", None, True, ""),
        ("/503", 4, True, "status 503, wanted 200"),
        ("/200", 5, True, "a body of 4 bytes, wanted 5"),
    ],
)
def test_an_answer_is_judged(address, path, length, answered, problem):
    assert request(address + path, 200, length) == (answered, problem)


def test_a_closed_port_is_not_ready():
    answered, problem = request("http://127.0.0.1:1/", 200, None)
    assert not answered
    assert "refused" in problem


def test_a_connection_is_enough_of_a_server_that_speaks_no_http():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert request(f"tcp://127.0.0.1:{port}", 200, None) == (True, "")
    answered, problem = request(f"tcp://127.0.0.1:{port}", 200, None)
    assert not answered and "refused" in problem


def test_a_line_of_the_output_is_enough_of_a_server_that_only_says_so(tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    asked = {"log": r"^ready after \d+ ms$", "files": [str(out), str(err)], "within_s": 0.1}
    out.write_text("starting\nnot ready after 3 ms, still busy\n")
    assert wait(asked) == {"problem": "no line of it matches"}
    threading.Timer(0.1, lambda: err.write_text("starting\nready after 12 ms\n")).start()
    assert wait({**asked, "within_s": 60}) == {"problem": ""}


def test_a_log_is_read_on_from_where_the_last_look_ended(tmp_path):
    """Each look, fifty a second on the measured host, read the whole output again."""
    path = tmp_path / "server.out"
    log = LogLines("^ready to accept", [str(path), str(tmp_path / "server.err")])
    assert not log.has_line(), "it is not there yet"
    path.write_text("starting\n" * 1000 + "not ready to accept\nready to")
    assert not log.has_line()
    assert log.read[str(path)] == (path.stat().st_size, "ready to")
    with open(path, "a") as file:
        file.write(" accept connections\n")
    assert log.has_line(), "a line that came in two parts"
    assert not log.has_line(), "nothing is read twice"
    path.write_text("ready to accept\n")
    assert log.has_line(), "another file of that name"
