"""`wirespeed serve`: past runs in a browser on this machine. It changes nothing but the index.

It answers this machine alone, and only requests that name it by its address: a page of another
site could else read it under a name that resolves to the loopback.
"""

from __future__ import annotations

import contextlib
import html
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from wirespeed.analysis import index, two_runs
from wirespeed.analysis import trend as trends
from wirespeed.analysis.cells import full_name, known_name
from wirespeed.analysis.summary import load
from wirespeed.errors import COMMAND, InputError, ResultsError, WirespeedError
from wirespeed.interrupts import signals_as_interrupts
from wirespeed.report import difference, history, wording
from wirespeed.results import store

ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
#: A report has a script of its own, for copying its tables. It may be another one's, so the script
#: has an origin of its own, too, and cannot read the other pages.
REPORT_POLICY = f"{POLICY}; script-src 'unsafe-inline'; img-src data:; sandbox allow-scripts"


def serve(runs: Path, port: int) -> None:
    """Answers until it is stopped."""
    try:
        server = ThreadingHTTPServer((ADDRESS, port), _handler(Pages(runs)))
    except OSError as error:
        raise InputError(f"--port: {port} cannot be used: {error.strerror}") from None
    with server, signals_as_interrupts():
        try:
            url = f"http://{ADDRESS}:{server.server_port}/"
            print(f"{url} shows the runs of {runs} (Ctrl-C ends it)", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            pass


class Pages:
    """The pages by their paths. One at a time: each may read and judge runs."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.turn = threading.Lock()

    def page(self, path: str, query: Mapping[str, str]) -> tuple[str, str]:
        """(HTML, its policy); raises ResultsError for what is not there."""
        with self.turn:
            if path == "/":
                unread: dict[str, str] = {}
                rows = history.rows(index.documents(self.runs, unread))
                return history.of_runs(rows, unread), POLICY
            if path.startswith("/run/"):
                return self._report(path.removeprefix("/run/")), REPORT_POLICY
            if path == "/compare":
                return self._compare(query), POLICY
            if path == "/trend":
                return self._trend(query), POLICY
        raise ResultsError(f"{path}: not found")

    def _folder(self, name: str) -> Path:
        """Only names from the list: a path would lead out of the folder of runs."""
        for folder in store.list_runs(self.runs):
            if folder.name == name:
                return folder
        raise ResultsError(f"run {name!r}: not found")

    def _report(self, name: str) -> str:
        report = self._folder(name) / "derived" / "report.html"
        if not report.is_file():
            raise ResultsError(f"{name}: has no report yet (write it: {COMMAND} report {name})")
        return report.read_text(encoding="utf-8")

    def _compare(self, query: Mapping[str, str]) -> str:
        first, second = (load(self._folder(query.get(key, ""))) for key in ("first", "second"))
        metrics = [query["metric"]] if query.get("metric") else [first.primary]
        return difference.html(first, second, two_runs.compare(first, second, metrics))

    def _trend(self, query: Mapping[str, str]) -> str:
        recipe = query.get("recipe", "")
        names = [
            folder
            for folder, document in index.documents(self.runs)
            if document["run"]["recipe"] == recipe and document["run"]["state"] != "running"
        ]
        summaries = trends.in_order(load(folder) for folder in names)
        if len(summaries) < 2:
            raise ResultsError(f"a trend needs at least two runs of {recipe!r}")
        last = summaries[-1]
        metric = query.get("metric") or last.primary
        cells = [cell for one in summaries for cell in one.measured]
        metric = known_name(cells, metric) or full_name(metric)
        histories = trends.series(summaries, metric)
        if not histories:
            raise ResultsError(f"no measured cell of these runs has {metric!r}")
        return history.of_trend(recipe, wording.measure(metric, last.unit(metric)), histories)


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                is_here = urlsplit(f"//{self.headers.get('Host', '')}").hostname in NAMES
                url = urlsplit(self.path)
            except ValueError as error:
                self._answer(HTTPStatus.BAD_REQUEST, _line(str(error)))
                return
            if not is_here:
                self._answer(HTTPStatus.FORBIDDEN, _line(f"ask http://{ADDRESS}, this machine"))
                return
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            try:
                text, policy = pages.page(unquote(url.path), query)
            except WirespeedError as error:
                self._answer(HTTPStatus.NOT_FOUND, _line(str(error)))
            except Exception as error:  # of a damaged run: the others are still shown
                text = f"{type(error).__name__}: {error}"
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, _line(text))
            else:
                self._answer(HTTPStatus.OK, text, policy)

        def _answer(self, status: HTTPStatus, text: str, policy: str = POLICY) -> None:
            body = text.encode(errors="replace")
            with contextlib.suppress(ConnectionError):  # the browser has left
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", policy)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the terminal is the user's."""

    return Handler


def _line(text: str) -> str:
    return f"<!doctype html><title>Wirespeed</title><p>{html.escape(text)}</p>"
