"""`wirespeed check`: the laws on small tables, and what they find in the published ones."""

import json
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


def test_a_table_without_findings_exits_with_status_0(tmp_path):
    path = tmp_path / "ok.csv"
    path.write_text("server,connections,rps,latency_mean_ms\na,100,10000,10\n")
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 0 and "nothing found" in result.stdout


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
