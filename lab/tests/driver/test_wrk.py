"""Parsing wrk's output; an output without a result is an error."""

import pytest

from wirespeed.driver import wrk
from wirespeed.driver.base import LoadRun
from wirespeed.driver.generator import Output
from wirespeed.errors import ProcessError
from wirespeed.recipe.resolve import Instance
from wirespeed.topology import Seat

TEXT = """Running 1s test @ http://127.0.0.1:8081/128
  1 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     4.42ms    9.10ms 177.12ms   93.50%
    Req/Sec    74.37k     6.20k   80.55k    90.00%
  Latency Distribution
     50%  403.00us
     75%  462.00us
     90%  759.00us
     99%    4.53ms
  76132 requests in 1.03s, 19.02MB read
  Socket errors: connect 1, read 2, write 3, timeout 4
  Non-2xx or 3xx responses: 5
Requests/sec:  73957.40
Transfer/sec:     18.48MB
"""


def instance(argv):
    seats = [Seat("here", 1)]
    return Instance("gen", 0, "load", "wrk", argv, seats, None, "", {}, {}, None, {}, {})


def test_figures_of_a_run(tmp_path):
    run = LoadRun(tmp_path, 1.0, 0.0, 0.0)
    (tmp_path / "out").write_text(TEXT)
    one = instance(["-t", "1", "-c", "100", "-d", "1s", "http://x/"])
    found = wrk.read(one, run, Output(tmp_path / "out", "", 7, 8))
    assert found.rps == 73957.40
    assert found.bytes_per_second == pytest.approx(18.48 * 1024**2)
    assert (found.completed, found.errors, found.timeouts, found.non_2xx) == (76132, 10, 4, 5)
    assert (found.window.start_unix_ns, found.window.length_ns) == (7, 1_030_000_000)
    assert found.connections == 100
    latency = found.latency["service"]
    assert latency.mean_ns == pytest.approx(4.42e6)
    assert latency.max_ns == pytest.approx(177.12e6)
    assert latency.quantiles_ns[0.99] == pytest.approx(4.53e6)
    assert found.little_residual == pytest.approx(4.42e6 / (100 / 73957.4 * 1e9) - 1)


@pytest.mark.parametrize(
    ("words", "connections"), [(["-c", "1k"], 1000), (["-c2K"], 2000), (["-c", "k"], 10), ([], 10)]
)
def test_connections_are_read_as_wrk_reads_them(words, connections, tmp_path):
    """Of 1k the lab knew nothing, took the default, and Little's law was broken in each trial."""
    run = LoadRun(tmp_path, 1.0, 0.0, 0.0)
    (tmp_path / "out").write_text(TEXT)
    one = instance([*words, "http://x/"])
    assert wrk.read(one, run, Output(tmp_path / "out", "", 7, 8)).connections == connections


def test_a_text_without_result_is_an_error_with_its_last_line(tmp_path):
    run = LoadRun(tmp_path, 1.0, 0.0, 0.0)
    (tmp_path / "out").write_text("unable to connect to x:80\n")
    with pytest.raises(ProcessError, match="unable to connect"):
        wrk.read(instance(["http://x/"]), run, Output(tmp_path / "out", "", 0, 1))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["-d", "1500ms", "u"], ["-d", "2s", "u"]),
        (["-d", "500ms", "u"], ["-d", "1s", "u"]),
        (["-d", "30s", "u"], ["-d", "30s", "u"]),
        (["u"], ["-d", "1s", "u"]),
    ],
)
def test_wrk_is_asked_for_whole_seconds(given, wanted, tmp_path):
    run = LoadRun(tmp_path, 1.0, 0.0, 0.0)
    assert wrk.command(tmp_path, instance(given), run).argv == ["wrk", "--latency", *wanted]
