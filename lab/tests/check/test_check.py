"""`wirespeed check`: the laws on small tables, and what they find in the published ones."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wirespeed.check import laws, table
from wirespeed.cli.app import app
from wirespeed.errors import InputError

PUBLISHED = Path(__file__).resolve().parents[3] / "recipes" / "published"


def found(tmp_path, text, law):
    path = tmp_path / "figures.csv"
    path.write_text(text)
    return [finding for finding in laws.check(table.read(path)) if finding.law == law]


def test_littles_law_names_the_mean_that_would_fit(tmp_path):
    text = "server,connections,rps,latency_mean_ms\na,100,10000,10\nb,100,10000,50\n"
    (finding,) = found(tmp_path, text, "Little's law")
    assert "server b" in finding.where
    assert "5 × the 100" in finding.says and "mean is 10.00 ms, not 50.00 ms" in finding.says


@pytest.mark.parametrize("table_of", [
    "connections,rps,latency_mean\n100,150k,0.667ms\n",
    "connections,rps,latency_mean\n100,0.15M,0.667ms\n",
    "connections,rps,latency_mean\n100,150krps,0.667ms\n",
    "connections,rps,latency_mean\n100,9000kreq/min,0.667ms\n",
    "connections,rps (k),latency_mean\n100,150,0.667ms\n",
    "connections,rps_k,latency_mean\n100,150,0.667ms\n",
    "connections,rps_max,latency_mean\n100,150000,0.667ms\n",
    "connections,metric,value,unit\n100,rps,150,kreq/s\n100,latency_mean,0.667,ms\n",
    "connections,metric,value,unit\n100,rps_max,9000,k/min\n100,latency_mean,0.667,ms\n",
    *(
        f"connections,{head},latency_mean\n100,150000,0.667ms\n"
        for head in (
            "RPS (avg)", "rps (max)", "qps mean", "transactions/s (median)", "Requests/s (avg)",
            "rps [1/s]", "rps[avg]", "rate (per second)", "rps (mean 1/s)",
            "Rate (higher is better)",
        )
    ),
    *(
        f"connections,metric,value,unit\n100,rps,{value},{unit}\n100,latency_mean,0.667,ms\n"
        for value, unit in (
            (150_000, "RPS"), (150, "kTPS"), (150_000, "Req/s"), (150_000, "Requests/sec"),
            (150_000, "Ops/sec"), (150, "Kops/s"), (150_000, "MSG/s"), (0.15, "Mmsg/s"),
            (150_000, "calls/s"), (9_000_000, "RPM"), (9000, "kHits/Min"),
        )
    ),
    "connections,rps,latency_mean\n100,150000 Requests/sec,0.667ms\n",
])  # fmt: skip
def test_the_unit_of_a_rate_counts(tmp_path, table_of):
    """`150k`, as wrk prints it, was 150: 0.001 × the connections that there were."""
    path = tmp_path / "figures.csv"
    path.write_text(table_of)
    (case,) = table.read(path)
    assert case.metrics["rate"] == pytest.approx(150_000)
    assert not laws.check([case])


@pytest.mark.parametrize(("row", "why"), [
    ("rps\n150 potatoes\n", "rps: unknown unit 'potatoes' of a rate"),
    ("rps (ms)\n150\n", "unknown unit 'ms' of a rate"),
    ("rps (ms avg)\n150\n", "unknown unit 'ms' of a rate"),
    ('"rps (avg, k)"\n150\n', "unknown unit 'avg,' of a rate"),
    ("rps [Gb/s]\n150\n", "unknown unit 'Gb/s' of a rate"),
    ("rps (thousands)\n150\n", "unknown unit 'thousands' of a rate"),
    ("gain (x)\n1.5\n", "unknown unit 'x' of a gain"),
    ("metric,value,unit\ngain,1.5,x\n", "unknown unit 'x' of a gain"),
    ("rps,reconnects\n150,3ms\n", "unknown unit 'ms' of reconnects"),
])  # fmt: skip
def test_an_unknown_unit_of_a_plain_figure_is_refused(tmp_path, row, why):
    path = tmp_path / "figures.csv"
    path.write_text(row)
    with pytest.raises(InputError, match=re.escape(why)):
        table.read(path)


def test_a_full_link_is_named_and_one_beyond_its_rate_is_broken(tmp_path):
    text = "payload,link_gbps,workers,rps\n10000,1,1,6000\n10000,1,2,11620\n10000,1,4,13000\n"
    (finding,) = found(tmp_path, text, "link")
    assert "with 2, 4 instances" in finding.says and finding.broken
    (full,) = found(tmp_path, text.replace("10000,1,4,13000\n", ""), "link")
    assert not full.broken


def test_a_throughput_in_units_of_wrk_is_recognised(tmp_path):
    # 1000 responses/s of 100,258 bytes in wrk's MB times 8 / 1000
    printed = 1000 * 100_258 * 8 / 1.048576e9
    text = f"payload,rps,throughput_Gb/s\n100000,1000,{printed}\n"
    (finding,) = found(tmp_path, text, "bytes per request")
    assert "95,613 to 95,613" in finding.says and "multiply by 1.04858" in finding.says
    decimal = "payload,rps,throughput_Gb/s\n100000,1000,0.802064\n"
    assert not found(tmp_path, decimal, "bytes per request")


def test_a_case_with_another_length_is_named(tmp_path):
    text = "server,rps,throughput_Mb/s\na,1000,24\nb,1000,24.3\nc,1000,18\n"
    (finding,) = found(tmp_path, text, "bytes per request")
    assert "server c" in finding.where
    assert "2,250 bytes per request, 3,000 in the others" in finding.says


def test_superlinear_scaling_doubts_the_smaller_figure(tmp_path):
    text = "stack,workers,rps\nk,1,100\nk,2,240\nk,4,470\n"
    (finding,) = found(tmp_path, text, "scaling")
    assert "2.40 × the rate with 2 × the workers: the figure with 1" in finding.says


def test_a_rate_of_zero_is_a_figure_that_no_law_divides_by(tmp_path):
    """Many tables have a cell without completed requests; `check` ended with a traceback."""
    text = "stack,workers,rps\nk,1,0\nk,2,240\nk,4,470\n"
    assert not found(tmp_path, text, "scaling")
    text = "payload,link_gbps,rps,throughput_Gb/s\n1000,25,0,0.1\n1000,100,5000,0.1\n"
    assert not found(tmp_path, text, "baseline")


def test_two_links_that_are_not_full_must_agree(tmp_path):
    text = "payload,link_gbps,rps\n0,25,100000\n0,100,140000\n10000,25,287472\n10000,100,900000\n"
    (finding,) = found(tmp_path, text, "baseline")
    assert "link_gbps 25" in finding.where and "1.40 × as fast" in finding.says


def test_percentiles_must_rise(tmp_path):
    (finding,) = found(tmp_path, "server,p50_ms,p99_us\na,2,1500\n", "percentiles")
    assert "p50 is 2.00 ms and p99 is 1.50 ms" in finding.says


def test_a_printed_gain_must_follow_from_the_figures(tmp_path):
    text = "table,stack,metric,value\nT,kernel,rps,100\nT,fast,rps,150\nT,fast,gain_printed,70\n"
    (finding,) = found(tmp_path, text, "gain")
    assert "printed 70 %, the figures give 50.00 %" in finding.says


def test_the_published_ramp_breaks_littles_law_in_every_tomcat_row_only():
    cases = table.read(PUBLISHED / "zuul_ramp.csv")
    little = [f.where for f in laws.check(cases) if f.law == "Little's law"]
    assert len(little) == 8 and all("tomcat" in where for where in little)
    (other,) = [f for f in laws.check(cases) if f.law == "bytes per request"]
    assert "tomcat, connections 2000" in other.where and "2,338" in other.says


def test_the_published_nginx_tables_show_unit_link_and_baseline():
    findings = laws.check(table.read(PUBLISHED / "nginx_onload_cookbook.csv"))
    (unit,) = [f for f in findings if f.law == "bytes per request"]
    assert "as wrk's MB" in unit.says
    full = [f for f in findings if f.law == "link" and f.where.startswith("T5")]
    assert {f.where.rsplit(" ", 1)[1]: f.says.split(",")[0] for f in full} == {
        "kernel": "with 8", "onload-balanced": "with 4", "onload-performance": "with 4",
    }  # fmt: skip
    slow = [f for f in findings if f.law == "baseline" and f.where.endswith("1, stack kernel")]
    assert [f.where[:2] for f in slow if f.where < "T6"] == ["T2", "T3", "T4", "T5"]
    scaling = [f.where[:2] for f in findings if f.law == "scaling" and "kernel" in f.where]
    assert scaling == ["T3", "T4", "T5"]


ROW = {
    "framework": "a", "rps": 10000, "avg_latency": "10ms", "p99_latency": "30.5ms", "cpu": "640%",
    "connections": 100, "pipeline": 1, "duration": "5s", "bandwidth": "1.5MB/s", "reconnects": 0,
    "status_2xx": 50000,
}  # fmt: skip


def of_json(tmp_path, *changes, law="Little's law"):
    path = tmp_path / "arena-100.json"
    path.write_text(json.dumps([ROW | change for change in changes]))
    return [finding for finding in laws.check(table.read(path)) if finding.law == law]


def test_json_with_units_in_its_values_is_a_table(tmp_path):
    assert not of_json(tmp_path, {}, {"bandwidth": "0"})
    (case, *_) = table.read(tmp_path / "arena-100.json")
    assert case.metrics["latency_mean"] == pytest.approx(0.01)
    assert case.metrics["p99"] == pytest.approx(0.0305)
    assert case.metrics["throughput"] == pytest.approx(12e6)
    # Other results do not name the case.
    assert str(case) == "arena-100: framework a, connections 100, pipeline 1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"avg_latency": "950ms"}, "about 95 requests open on each connection"),
        ({"avg_latency": "13ms"}, "corrected for a schedule"),
        ({"avg_latency": "6ms"}, "connections that were not open all the time"),
        ({"avg_latency": "6ms", "reconnects": 5000}, "5,000 reconnects, 40.00 ms each"),
        ({"avg_latency": "6ms", "reconnects": 3}, "connections that were not open all the time"),
        ({"pipeline": 16, "reconnects": 49000}, "closed connections, 49,000 times, with requests"),
    ],
)
def test_the_direction_of_a_violation_and_the_table_say_what_it_fits(tmp_path, change, said):
    (finding,) = of_json(tmp_path, change)
    assert said in finding.says


def test_a_pipeline_multiplies_the_open_requests(tmp_path):
    assert not of_json(tmp_path, {"pipeline": 16, "avg_latency": "160ms"})


def test_a_p99_that_is_the_mean_is_one_finding_of_its_table(tmp_path):
    same = {"p99_latency": "10ms"}
    (finding,) = of_json(tmp_path, same, {}, same, law="percentiles")
    assert "the same in 2 cases, here 10.00 ms" in finding.says


def test_frameworks_have_response_heads_of_different_lengths(tmp_path):
    rates = [{"framework": f"f{size}", "bandwidth": f"{size}MB/s"} for size in (1, 2, 3)]
    assert not of_json(tmp_path, *rates, law="bytes per request")
    alike = [{"bandwidth": f"{size}MB/s", "threads": size} for size in (1, 1, 3)]
    assert of_json(tmp_path, *alike, law="bytes per request")


def test_the_published_arena_has_the_findings_of_the_page():
    findings = laws.check(table.read(PUBLISHED / "http_arena.json"))
    little = {f.where.split(",")[0]: f.says for f in findings if f.law == "Little's law"}
    assert len(little) == 15 and len(findings) == 19
    assert "baseline-512: framework h2o" not in little
    assert "15.90 ms each" in little["limited-conn-512: framework humming-bird"]
    assert "about 95 requests open" in little["baseline-h2-256: framework actix"]
    assert "with requests open" in little["pipelined-512: framework flask"]
    assert "11.9 ×" in little["static-4096: framework caddy"]


def test_many_findings_of_one_law_are_cut_off_with_their_number(tmp_path):
    path = tmp_path / "many.json"
    path.write_text(
        json.dumps([ROW | {"avg_latency": "1ms", "framework": str(n)} for n in range(23)])
    )
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 1 and "and 3 more (--json prints all)" in result.stdout
    as_json = CliRunner().invoke(app, ["check", "--json", str(path)])
    assert len(json.loads(as_json.stdout)[str(path)]) == 23


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read as JSON"),
        ('{"rps": 1}', "not a list of objects"),
        ("[1]", "not a list of objects"),
        ('[{"a": 1}]', "no object has a metric"),
        ('[{"rps": 1}, {"rps": "many"}]', "object 2: rps: 'many' is not a number"),
        ('[{"avg_latency": "5 potatoes"}]', "object 1: avg_latency: unknown unit 'potatoes'"),
        ('[{"avg_latency": 5}]', "unknown unit '' of a latency"),
        ("[" * 100000, "cannot be read as JSON"),
    ],
)
def test_json_that_cannot_be_read_says_where(tmp_path, text, said):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.json") as refused:
        table.read(path)
    assert said in str(refused.value)


def test_a_table_without_findings_exits_with_status_0(tmp_path):
    path = tmp_path / "ok.csv"
    path.write_text("server,connections,rps,latency_mean_ms\na,100,10000,10\n")
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 0 and "nothing found" in result.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("heads.csv", "server,connections,rps,latency_mean_ms\n"),
        ("rates.csv", "server,rps\na,10000\nb,20000\n"),
        ("unknown.csv", "server,conns,rps,latency_mean_ms\na,100,10000,50\n"),
        ("empty.json", "[]"),
    ],
)
def test_a_table_that_no_law_applies_to_is_not_without_findings(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    result = CliRunner().invoke(app, ["check", str(path)])
    assert isinstance(result.exception, InputError) and not result.stdout
    assert "no law applies to its" in str(result.exception)


def test_numbers_of_connections_are_read_as_people_write_them(tmp_path):
    """Of "1,000" connections none was checked, and nothing was found."""
    text = 'server,connections,rps,latency_mean_ms\na,"1,000",10000,10\nb,nan,10000,10\n'
    (finding,) = found(tmp_path, text, "Little's law")
    assert "the 1,000 that there were" in finding.says


def test_findings_as_json_exit_with_status_1():
    result = CliRunner().invoke(app, ["check", "--json", str(PUBLISHED / "zuul_ramp.csv")])
    assert result.exit_code == 1
    ((_, findings),) = json.loads(result.stdout).items()
    assert {"law", "where", "says", "broken"} == set(findings[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column is a metric"),
        ("a,b\n1,2\n", "no column is a metric"),
        ("server,rps\nx,fast\n", "line 2: rps: 'fast' is not a number"),
        ("server,latency_mean\nx,5\n", "unknown unit '' of a latency"),
        ("server,throughput_potatoes\nx,5\n", "unknown unit 'potatoes' of throughput"),
        ("metric,value,unit\nrps,nan,\n", "'nan' is not a number"),
        ('server,latency_mean_ms\nx,"1,5"\n', "'1,5' is not a number (a comma groups three digits"),
    ],
)
def test_a_table_that_cannot_be_read_says_where(tmp_path, text, said):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.csv") as refused:
        table.read(path)
    assert said in str(refused.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        table.read(tmp_path / "none.csv")
