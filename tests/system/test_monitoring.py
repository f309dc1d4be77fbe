"""The page on Grafana is true: what its dashboard asks for is what the three programs print."""

import json
import os
import re
import signal
import subprocess
import urllib.request

import promql_parser
import pytest
from frontdoor import PATIENCE_S, ROOT, wait_until

DASHBOARD = json.loads((ROOT / "docs" / "monitoring" / "dashboard.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
SERVER = ["http-server", "--port", "0", "--payload", "16"]


def metrics_of(expression):
    """The names of the series that an expression reads."""
    return set(re.findall(r"\b(?:wirespeed|bypass|process|system|jvm)_\w+", expression))


def names_in(page):
    """The series of a page in Prometheus' text format."""
    return set(re.findall(r"^([a-z]\w*)[{ ]", page, re.M))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_of_the_dashboard_is_promql(expression):
    promql_parser.parse(expression.replace("$__rate_interval", "1m"))


def test_panels_do_not_overlap_and_are_named_once():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def ports_of(process):
    """The ports that a server prints at its start, behind what `./wirespeed` may say about a build."""
    for line in process.stdout:
        found = re.findall(r"127\.0\.0\.1:(\d+)", line)
        if found:
            return found
    raise AssertionError(f"ended with {process.wait()} before it listened")


def test_the_three_programs_print_every_metric_of_the_dashboard(wirespeed, tmp_path):
    page = tmp_path / "load.prom"
    load = ["load", "-t1", "-c2", "-d2s", "--prometheus", str(page)]
    collected = tmp_path / "bypass.prom"
    started = []

    def start(*words):
        started.append(wirespeed.start(*words))
        return ports_of(started[-1])

    try:
        # Both ends of the second hop are accelerated, so that bypass has sockets to report.
        (port,) = start("bypass", "run", "-p", "latency", "--", str(ROOT / "wirespeed"), *SERVER)
        origin = f"127.0.0.1:{port}"
        listen, admin = start("gateway", "--listen", "127.0.0.1:0", "--origin", origin, "--admin", "127.0.0.1:0")
        wait_until(lambda: answers(f"http://127.0.0.1:{listen}/"), "the gateway")
        wirespeed(*load, f"http://127.0.0.1:{listen}/")
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as answer:
            of_gateway = answer.read().decode()
        # As the page has it: no checkout puts `bypass` on the path.
        collector = [ROOT / "docs" / "monitoring" / "collect-bypass", collected, "0"]
        environment = {name: value for name, value in os.environ.items() if name != "WIRESPEED"}
        subprocess.run(collector, env=environment, check=True)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)
    of_bypass = collected.read_text()
    heads = set(re.findall(r"^# TYPE (\w+) counter", of_bypass, re.M))  # no fallback, no series of it
    printed = names_in(of_gateway) | names_in(page.read_text()) | names_in(of_bypass) | heads
    wanted = set().union(*map(metrics_of, EXPRESSIONS))
    assert len(wanted) >= 15
    assert wanted <= printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bypass.prom", "load.prom"]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
