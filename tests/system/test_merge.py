"""Results of several hosts added: the percentiles are those of all samples together."""

import json
import math
import os
import subprocess
import sys

import pytest
from frontdoor import PATIENCE_S, ROOT
from hdrh.histogram import HdrHistogram
from test_measure import finished_trials, only_run, runs_here

LOAD = ROOT / "target" / "release" / "wirespeed-load"
HOSTS = 4
RESOLUTION_NS = 64  # of the generator's histograms
SITE = f"""
[site.four]
kind = "netns"
load = {{ count = {HOSTS} }}
link.veth = {{ mtu = 1500 }}
"""
#: The null server of the generator, and a generator on each of four hosts.
RECIPE = f"""
wirespeed = 2
name = "four"
title = "One server under four hosts"
axes = {{ rate = [400, 500] }}
plan = {{ repeat = 1, warmup = "200ms", duration = "2s", restart = "trial" }}

[[process]]
name  = "null"
role  = "server"
port  = {{ base = 18180 }}
argv  = ["{LOAD}", "sink", "{{{{ server.addr }}}}:{{{{ port }}}}"]
ready = {{ http = "http://{{{{ server.addr }}}}:{{{{ port }}}}/", status = 200, length = 0 }}

[[process]]
name  = "load"
role  = "load"
count = {HOSTS}
tool  = "load"
argv  = ["-t", "1", "-c", "4", "-R", "{{{{ rate }}}}", "-d", "{{{{ duration }}}}",
  "http://{{{{ server.addr }}}}:{{{{ null.port }}}}/"]

[[metric]]
name = "rps"
from = "load"

[[metric]]
name    = "latency"
from    = "load"
combine = "histogram"

[[table]]
rows  = "rate"
value = "rps"
"""


def merge(*files, expect=0):
    words = [LOAD, "merge", *files]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == expect, done.stderr
    return done


def truth(results):
    """All samples in one histogram, added by another reader of the format."""
    together = HdrHistogram(RESOLUTION_NS, 24 * 3600 * 10**9, 3)
    for result in results:
        together.decode_and_add(result["latency"]["response"]["hdr_v2"])
    return together


def nearest_rank(histogram, quantile):
    """The least value that the share does not exceed, as the generator defines it. The other reader
    rounds to the nearest sample instead: another one where a request is missing from the round count."""
    count = histogram.get_total_count()
    rank = math.ceil(quantile * count * (1 - sys.float_info.epsilon))
    return histogram.get_value_at_percentile(100 * rank / count)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")
def test_four_results_over_namespaces_add_up_to_all_samples(wirespeed):
    (wirespeed.folder / "sites.toml").write_text(SITE)
    (wirespeed.folder / "four.toml").write_text(RECIPE)
    wirespeed("run", "four.toml", "--site", "four", *runs_here(wirespeed))
    first, second = finished_trials(only_run(wirespeed.folder))
    files = sorted(first.parent.glob("load-load-*.json"))
    results = [json.loads(file.read_text()) for file in files]
    assert len(results) == HOSTS
    trial = json.loads(first.read_text())
    hosts = {one["host"] for one in trial["processes"] if one["role"] == "load"}
    assert len(hosts) == HOSTS

    sum_file = wirespeed.folder / "sum.json"
    merge(*files, "--json", sum_file)
    merged = json.loads(sum_file.read_text())
    response, together = merged["latency"]["response"], truth(results)
    parts = [result["latency"]["response"] for result in results]
    assert response["count"] == together.get_total_count() == sum(part["count"] for part in parts)
    # in the common form of the format a bucket has the same edges wherever it is read
    for quantile, value in response["quantiles"].items():
        if value is not None and value < response["max"]:
            assert value == nearest_rank(together, float(quantile)), quantile
    assert response["max"] == max(part["max"] for part in parts)
    assert response["min"] == min(part["min"] for part in parts)
    means = sum(part["mean"] * part["count"] for part in parts)
    assert response["mean"] == pytest.approx(means / response["count"], rel=1e-9)
    assert trial["metrics"]["latency.p50"] == pytest.approx(
        response["quantiles"]["0.5"] / 1e3, rel=1e-3)
    assert merged["totals"]["completed"] == sum(r["totals"]["completed"] for r in results)
    assert merged["plan"]["hosts"] == HOSTS

    other = sorted(second.parent.glob("load-load-*.json"))[0]
    refused = merge(files[0], other, expect=1)
    assert "merge: the plans differ: rate_rps is " in refused.stderr
