"""`wirespeed serve`: past runs in a browser, for this machine alone."""

import http.client
import json
import re
import shutil
import signal
import threading
from http.server import ThreadingHTTPServer

import pytest
from report.make_run import KINDS, make_run

from wirespeed.cli import query, serve, show
from wirespeed.results import store

PATIENCE_S = 180.0  # a loaded two-core machine


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(runs, get): two runs of one recipe, of which the first has a report."""
    runs = tmp_path_factory.mktemp("runs")
    first = make_run(KINDS["quickstart"](), runs, 1)
    second = make_run(KINDS["quickstart"](), runs, 2)
    run = json.loads((second / "run.json").read_text())
    run |= {"labels": {"branch": "<b>main"}, "started": "2027-01-01T00:00:00Z"}
    (second / "run.json").write_text(json.dumps(run))
    (first / "derived").mkdir(exist_ok=True)
    (first / "derived" / "report.html").write_text("<p>the report</p>")
    (runs / "secret").mkdir()
    server = ThreadingHTTPServer((serve.ADDRESS, 0), serve._handler(serve.Pages(runs)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def get(path, host=None):
        connection = http.client.HTTPConnection(serve.ADDRESS, server.server_port, timeout=60)
        connection.request("GET", path, headers={"Host": host} if host else {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text, response.headers

    yield runs, get
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_list_has_every_run_the_last_first_and_leads_to_its_report(site):
    runs, get = site
    first, second = (folder.name for folder in store.list_runs(runs))
    status, text, headers = get("/")
    assert status == 200 and text.index(second) < text.index(first)
    assert "&lt;b&gt;main" in text and "<b>main" not in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    status, report, policy = get(f"/run/{first}")
    assert (status, report) == (200, "<p>the report</p>")
    # Without an origin of this site its script cannot read the other pages.
    assert policy["Content-Security-Policy"].endswith("; sandbox allow-scripts")
    status, text, _ = get(f"/run/{second}")
    assert status == 404 and f"report {second}" in text


def test_a_run_is_found_under_the_name_that_its_user_gave_its_folder(site):
    """Its links had the name under which it was measured, which led nowhere."""
    runs, get = site
    first = store.list_runs(runs)[0]
    named = first.with_name("before the change")
    first.rename(named)
    try:
        text = get("/")[1]
        assert 'href="/run/before%20the%20change"' in text and first.name not in text
        assert get("/run/before%20the%20change")[1] == "<p>the report</p>"
    finally:
        named.rename(first)



def test_two_runs_are_compared(site):
    runs, get = site
    first, second = (folder.name for folder in store.list_runs(runs))
    status, text, _ = get(f"/compare?first={first}&second={second}")
    assert status == 200 and first in text and second in text
    status, text, _ = get(f"/compare?first={first}&second={second}&metric=nothing")
    assert status == 404 and "neither run has" in text
    assert get(f"/compare?first={first}")[0] == 404


def test_a_metric_is_followed_over_the_runs_of_a_recipe(site):
    _, get = site
    status, text, _ = get("/trend?recipe=quickstart&metric=p99")
    assert status == 200 and "latency p99" in text and "connections 100" in text
    assert get("/trend?recipe=nothing")[0] == 404


@pytest.mark.parametrize("path", ["/run/..%2F..%2Fetc", "/run/secret", "/run/", "/other", "/run/."])
def test_nothing_else_is_served(site, path):
    assert site[1](path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example:8642", "evil.example", "127.0.0.1.evil.example:80"])
def test_a_name_that_resolves_to_this_machine_is_refused(site, host):
    status, text, _ = site[1]("/", host)
    assert status == 403 and "127.0.0.1" in text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:80"])
def test_a_host_without_its_port_is_this_machine_too(site, host):
    """With --port 80 every page was refused."""
    assert site[1]("/", host)[0] == 200


@pytest.mark.parametrize(("path", "host"), [("http://[", "127.0.0.1"), ("/", "[")])
def test_an_address_that_cannot_be_read_is_refused(site, path, host):
    assert site[1](path, host)[0] == 400


def test_a_report_that_cannot_be_read_leaves_the_others(site):
    runs, get = site
    second = store.list_runs(runs)[1]
    report = second / "derived" / "report.html"
    report.parent.mkdir(exist_ok=True)
    report.write_bytes(b"\xff")
    try:
        status, text, _ = get(f"/run/{second.name}")
        assert status == 500 and "UnicodeDecodeError" in text
        assert get("/")[0] == 200
    finally:
        report.unlink()


def test_runs_that_cannot_be_read_are_named_and_the_others_listed(site, capsys):
    """One malformed run.json made the list a server error."""
    runs, get = site
    whole = [folder.name for folder in store.list_runs(runs)]
    damage = {
        "no-table": "[1]", "no-json": "{", "no-plan": '{"format": 1, "run_id": "x", "recipe": "y"}',
        "wrong": '{"format": 1, "run_id": "x", "recipe": "y", "plan": null}',
        "deep": json.dumps({**json.loads((runs / whole[0] / "run.json").read_text()),
                            "metrics": [{"unit": "s"}]}),
    }  # fmt: skip
    try:
        for name, text in damage.items():
            (runs / name).mkdir()
            (runs / name / "run.json").write_text(text)
        (runs / "deep" / "plan.jsonl").write_text("")
        status, page, _ = get("/")
        assert status == 200 and all(name in page for name in whole)
        listed = re.findall(r"<li>(.*?): (.*?)</li>", page)
        assert sorted(name for name, _ in listed) == sorted(damage)
        assert all(why for _, why in listed)
        query.query_all(runs, "select run from runs", False, True)
        told = capsys.readouterr()
        assert told.out.split() == ["run", *whole]
        assert all(f"run {name} is left out: " in told.err for name in damage)
        show.runs(runs, True)
        rows = json.loads(capsys.readouterr().out)
        assert {row["run"] for row in rows if row["error"]} >= damage.keys() - {"deep"}
    finally:
        for name in damage:
            shutil.rmtree(runs / name)


def test_the_command_prints_its_address_and_ends_on_a_signal(checkout):
    process = checkout.start("serve", "--port", "0")
    line = process.stdout.readline()
    assert line.startswith("http://127.0.0.1:") and "Ctrl-C ends it" in line
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and not err
