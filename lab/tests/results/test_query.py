"""`wirespeed query`: SQL over a run's trials, which it never changes."""

import dataclasses
import json
import re
import shutil
import sqlite3
import statistics
from pathlib import Path

import pytest
from report.make_run import KINDS, RPS, make_run
from typer.testing import CliRunner

import wirespeed
from wirespeed.analysis import index
from wirespeed.analysis.summary import load
from wirespeed.cli.app import app
from wirespeed.errors import InputError, ResultsError
from wirespeed.results import query, store


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return make_run(KINDS["quickstart"](), tmp_path_factory.mktemp("runs"))


def ask(run_dir, *words):
    return CliRunner().invoke(app, ["query", str(run_dir), *words])


def test_axes_and_metrics_are_columns(run_dir):
    heads, rows = query.ask(
        run_dir,
        'select server, stack, avg("latency.p99") p99 from trials where valid group by 1, 2',
    )
    assert heads == ["server", "stack", "p99"]
    trials = [t for t in store.read_trials(run_dir) if t.valid]
    for server, stack, p99 in rows:
        own = [t for t in trials if (t.axes["server"], t.axes["stack"]) == (server, stack)]
        assert p99 == pytest.approx(statistics.fmean(t.metrics["latency.p99"] for t in own))


def test_an_axis_that_is_called_like_a_column_has_one_of_its_own(tmp_path):
    """The trial's `round` hid the recipe's axis `round`, and an axis `cell` hid the cell."""
    kind = KINDS["quickstart"]()
    axes = {**kind.axes, "round": ["short"], "cell": ["big"]}
    run_dir = make_run(dataclasses.replace(kind, axes=axes), tmp_path)
    question = 'select distinct "axis.round", "axis.cell" from trials'
    assert query.ask(run_dir, question)[1] == [("short", "big")]
    ids = {line.cell for line in store.read_plan(run_dir)}
    assert {row[0] for row in query.ask(run_dir, "select cell from plan")[1]} == ids


def test_axes_that_differ_in_letter_case_only_all_have_columns(tmp_path):
    """The third was `axis.SIZE`, which SQLite takes for the second, `axis.Size`: one was lost."""
    kind = KINDS["quickstart"]()
    axes = {**kind.axes, "size": ["a"], "Size": ["b"], "SIZE": ["c"]}
    run_dir = make_run(dataclasses.replace(kind, axes=axes), tmp_path)
    for table in ("trials", "plan"):
        question = f'select distinct size, "axis.size", "axis.axis.size" from {table}'
        assert query.ask(run_dir, question)[1] == [("a", "b", "c")]


def test_cells_that_were_not_measured_stand_in_the_plan(run_dir):
    (_, rows) = query.ask(run_dir, "select count(*) from plan")
    assert rows == [(len({line.cell for line in store.read_plan(run_dir)}),)]


def test_rows_for_programs(run_dir):
    shown = ask(run_dir, "select round, rps from trials order by rps desc limit 2", "--json")
    first, second = json.loads(shown.stdout)
    assert first["rps"] >= second["rps"] and set(first) == {"round", "rps"}
    shown = ask(run_dir, "select distinct server from trials order by 1", "--csv")
    assert shown.stdout == "server\nnetty\nnginx\n"


def test_two_columns_of_one_name_do_not_become_one(run_dir):
    question = "select a.rps, b.rps from trials a, trials b limit 1"
    assert str(ask(run_dir, question, "--json").exception).startswith(
        "query: two columns are called 'rps'"
    )
    assert ask(run_dir, question, "--csv").stdout.startswith("rps,rps\n")


def test_a_number_that_is_larger_than_sqlites_is_a_text():
    tables = sqlite3.connect(":memory:")
    query.fill(tables, "trials", [{"size": 2**63}, {"size": 2**63 - 1}, {"size": -(2**63)}])
    rows = query.answer(tables, "select size from trials")[1]
    assert rows[:2] == [(str(2**63),), (2**63 - 1,)] and int(rows[2][0]) == -(2**63)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("select rsp from trials", "no such column: rsp"),
        ("selct 1", "syntax error"),
        ("delete from trials", "readonly"),
        ("select 1; select 2", "one statement"),
        ("", "not a SELECT"),
    ],
)
def test_a_wrong_question_is_one_line_that_names_the_columns(run_dir, question, said):
    with pytest.raises(InputError) as refused:
        query.ask(run_dir, question)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    if "column" in said:
        assert "trials: " in str(refused.value) and "latency.p99" in str(refused.value)


def test_all_runs_are_asked_at_once_and_only_new_ones_are_read(tmp_path, monkeypatch):
    for seed in (1, 2):
        make_run(KINDS["quickstart"](), tmp_path, seed)
    read = []
    monkeypatch.setattr(index, "load", lambda folder: read.append(folder.name) or load(folder))
    question = "select run, count(*) n from trials where valid group by 1 order by 1"

    def asked():
        words = ["query", "--all", question, "--json", "--runs", str(tmp_path)]
        return json.loads(CliRunner().invoke(app, words).stdout)

    first = asked()
    assert [row["n"] for row in first] == [155, 155] and len(read) == 2
    assert asked() == first and len(read) == 2, "the index is up to date"
    make_run(KINDS["quickstart"](), tmp_path, 3)
    assert len(asked()) == 3 and len(read) == 3
    (tmp_path / index.FILE).write_bytes(b"not a database, for some reason" * 99)
    assert len(asked()) == 3, "a damaged index must not fail the query"
    tables = index.database(tmp_path)
    _, rows = query.answer(tables, "select distinct verdict from comparisons where metric = 'rps'")
    assert ("gain",) in rows
    with pytest.raises(InputError, match="tables and columns: runs: run, recipe"):
        query.answer(tables, "select nothing from runs")


def test_a_copy_of_a_run_counts_once(tmp_path):
    run_dir = make_run(KINDS["quickstart"](), tmp_path)
    shutil.copytree(run_dir, tmp_path / f"{run_dir.name}-copy")
    unread = {}
    tables = index.database(tmp_path, unread)
    assert query.answer(tables, "select count(*) from runs")[1] == [(1,)]
    assert unread == {f"{run_dir.name}-copy": f"it is a copy of {run_dir.name}"}


def test_a_metric_in_two_units_is_named(tmp_path):
    """An average over MB/s and Gb/s looked like any other."""
    kinds = []
    for seed, unit in enumerate(("Gb/s", "Gb/s", "MB/s")):
        metric = {"name": "throughput", "from": "load", "field": "bytes_per_second", "unit": unit}
        kind = dataclasses.replace(KINDS["quickstart"](), metrics=[RPS, metric])
        kinds.append(make_run(kind, tmp_path, seed))

    def told(question):
        words = ["query", "--all", question, "--csv", "--runs", str(tmp_path)]
        return CliRunner().invoke(app, words).stderr

    line = "wirespeed: throughput is in Gb/s and MB/s: see the runs' column `units`\n"
    assert told("select avg(throughput) from trials") == line
    assert told("select avg(rps) from trials") == ""
    shutil.rmtree(kinds[-1])
    assert told("select avg(throughput) from trials") == ""


def test_another_build_judges_all_runs_again(tmp_path, monkeypatch):
    """Verdicts of an older build stayed in the index for ever."""
    make_run(KINDS["quickstart"](), tmp_path)
    assert len(list(index.documents(tmp_path))) == 1
    other = {"judged": "by another build", "run": {"run": "one"}}
    monkeypatch.setattr(index, "_document", lambda summary: other)
    ((_, kept),) = index.documents(tmp_path)
    assert "trials" in kept, "the same build reads what it wrote"
    monkeypatch.setattr(index, "_build", lambda: "another")
    ((_, judged),) = index.documents(tmp_path)
    assert judged == other


def cut(path):
    path.write_bytes(path.read_bytes()[: 2 * 4096 + 99])


def overwrite(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))


def other_table(path):
    path.unlink()
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE runs (name TEXT)")


def no_json(path):
    with sqlite3.connect(path) as made:
        made.execute("UPDATE runs SET document = '{'")


@pytest.mark.parametrize("damage", [cut, overwrite, other_table, no_json])
def test_a_damaged_index_is_made_again(tmp_path, monkeypatch, damage):
    make_run(KINDS["quickstart"](), tmp_path)
    whole = list(index.documents(tmp_path))
    damage(tmp_path / index.FILE)
    assert list(index.documents(tmp_path)) == whole
    monkeypatch.setattr(index, "load", lambda folder: pytest.fail("it is up to date again"))
    assert list(index.documents(tmp_path)) == whole


def test_query_names_what_it_needs(tmp_path):
    for words in (["query", "select 1"], ["query", "--all", "latest", "select 1"]):
        done = CliRunner().invoke(app, [*words, "--runs", str(tmp_path)])
        assert "needs RUN and SELECT, or --all and SELECT" in str(done.exception)


def test_the_page_reads_a_run_from_python(run_dir, monkeypatch, capsys):
    """Its program as it stands, and every field that it promises."""
    page = (Path(__file__).parents[3] / "docs" / "query.md").read_text()
    monkeypatch.setenv("WIRESPEED_RUNS", str(run_dir.parent))
    (run_dir.parent / "latest").symlink_to(run_dir.name)
    code = re.search(r"```python\n(.*?)```", page, re.S)[1]
    exec(compile(code, "query.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    summary = wirespeed.load_run(run_dir)
    assert len(lines) > len(summary.cells) and any(line.endswith("gain") for line in lines)
    objects = {
        "the run": summary, "a cell": summary.measured[0], "a gain": summary.gains[0],
        "a trial": summary.valid[0],
    }  # fmt: skip
    rows = re.findall(r"^\| (the run|a cell|a gain|a trial) \| (.*) \|$", page, re.M)
    assert len(rows) == len(objects)
    for what, fields in rows:
        plain = re.sub(r"\([^)`]*(?:`[^`]*`[^)`]*)*\)(?!`)", "", fields)  # of a field's own fields
        for field in re.findall(r"`(\w+)", plain):
            assert hasattr(objects[what], field), f"{what} has no {field}"
    with pytest.raises(ResultsError, match="not found"):
        wirespeed.load_run("nothing", run_dir.parent)


def test_the_index_reads_runs_again_after_a_change_of_any_code_that_judges():
    """It watched one package of three: verdicts stayed as an earlier build had judged them."""
    root = Path(wirespeed.__file__).parent
    texts = [path.read_text() for path in (root / "analysis").glob("*.py")]
    used = {name for text in texts for name in re.findall(r"^from wirespeed\.(\w+)", text, re.M)}
    assert {name for name in used if (root / name).is_dir()} <= set(index.JUDGING)


def test_axes_that_differ_in_letter_case_alone_are_two_columns(tmp_path):
    """One of the two was left out without a word: names of SQLite are the same in either case."""
    kind = KINDS["quickstart"]()
    axes = {**kind.axes, "size": ["small"], "Size": ["large"]}
    run_dir = make_run(dataclasses.replace(kind, axes=axes), tmp_path)
    for table in ("trials", "plan"):
        question = f'select distinct size, "axis.Size" from {table}'
        assert query.ask(run_dir, question)[1] == [("small", "large")]


def test_a_run_has_the_name_of_its_folder(tmp_path):
    """It had the one that it was measured under, by which no command found it any more."""
    make_run(KINDS["quickstart"](), tmp_path).rename(tmp_path / "before")
    with index.database(tmp_path) as tables:
        for table in ("runs", "trials", "comparisons"):
            assert query.answer(tables, f"select distinct run from {table}")[1] == [("before",)]
