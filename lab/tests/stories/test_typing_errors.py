"""The table of mistakes on the command line: one line, exit code 2, and nothing is left behind.

That of recipes is recipe/test_mistakes.py.
"""

import sys

import pytest

from wirespeed.cli import app, run
from wirespeed.errors import RunError

RECIPE = """
wirespeed = 1
name = "r"
axes = { connections = [1, 2] }
[[process]]
name = "app"
role = "server"
port = { base = 8000 }
argv = ["true"]
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{connections}", "http://{server.addr}:{app.port}/"]
[[metric]]
name = "rps"
from = "gen"
"""

MISTAKES = [  # what is typed, and what the line says
    ("run", "run needs a RECIPE or --resume RUN"),
    ("run nothing", "there is no recipe 'nothing'"),
    ("run quickstrat", "did you mean 'quickstart'?"),
    ("run r", "did you mean './r.toml'?"),
    (
        "run r.toml r.toml",
        "run: Got unexpected extra argument(s) (r.toml); see wirespeed run --help",
    ),
    ("run r.toml --repeat 0", "run: Invalid value for '--repeat'"),
    ("run r.toml --frob", "run: No such option: --frob"),
    ("tune apply", "tune apply: Missing argument 'RECIPE'; see wirespeed tune apply --help"),
    ("run ./gone.toml", "there is no recipe './gone.toml'"),
    ("run r.toml --fit tight", "--fit is one of strict, share, pairs, not 'tight'"),
    ("run r.toml --budget 5", "--budget: '5' has no unit"),
    ("run r.toml --budget 5x", "unknown unit 'x'"),
    ("run r.toml --only colour=red", "the recipe has no axis 'colour'; its axes: connections"),
    ("run r.toml --only connections=9", "axis connections has no value '9'; it has 1, 2"),
    ("run r.toml --only connections", "write connections=VALUE"),
    ("run r.toml --site mars", "mars"),
    ("run r.toml --fail-on sadness", "--fail-on takes loss and undecided, not 'sadness'"),
    ("run r.toml --require p99", "write it like 'p99 < 5ms'"),
    ("run r.toml --require p99<5", "has no unit"),
    ("run r.toml --add-rounds 2", "--add-rounds goes with --resume RUN"),
    ("run --resume gone", "there is no run 'gone'"),
    ("run --resume gone --set plan.repeat=2", "the run keeps its own; leave out --set"),
    ("run --resume gone --repeat 9 --tune", "the run keeps its own; leave out --repeat, --tune"),
    ("run r.toml --set plan.repeat", "write KEY=VALUE, for example plan.duration=30s"),
    ("run r.toml --set plan.repaet=2", "plan.repaet: unknown key; did you mean 'repeat'?"),
    ("run r.toml --set process.web.count=2", "there is no 'web'; there are: app, gen"),
    ("run r.toml --set name.x=2", "'x' is no key of a table"),
    ("run r.toml --label main", "write KEY=VALUE, for example branch=main"),
    ("run r.toml --wait-for-calm soon", "soon"),
    ("plan r.toml --set axes.connections=[]", "axes.connections: is empty"),
    ("report gone", "there is no run 'gone'"),
    ("report", "there are none yet, and `wirespeed run quickstart` makes one"),
    ("compare", "compare takes two RUNs, or --run COMMAND twice or more"),
    ("compare one", "compare takes two RUNs"),
    ("compare one two", "there is no run 'one'"),
    ("compare --run true", "--run COMMAND twice or more"),
    ("compare --run gone-program --run true", "--run: there is no program 'gone-program'"),
    ("compare a b --fail-on gain", "--fail-on takes worse and undecided, not 'gain'"),
    ("reproduce gone", "there is no run 'gone'"),
    ("reproduce gone.html", "there is no gone.html"),
    ("trend", "there is no run 'latest'"),
    ("trend --recipe r", "a trend takes two runs or more, and there are 0"),
    ("trend --fail-on loss", "--fail-on takes worse, not 'loss'"),
    ("doctor gone", "there is no run 'gone'"),
    ("knee r.toml --require p99", "write it like 'p99 < 5ms'"),
    ("knee gone --require p99<5ms", "there is no recipe 'gone'"),
    ("baseline save main", "there is no run 'latest'"),
    ("baseline remove main", "there is no baseline 'main'"),
    ("query gone select", "there is no run 'gone'"),
    ("check gone.csv", "gone.csv"),
    ("init r.txt --command true", "a recipe's file is named like my-server.toml"),
    ("init r.toml --command true", "r.toml exists; --force writes it again"),
    ("init new.toml --command gone-program", "--command: there is no program 'gone-program'"),
    ("init new.toml --command true --connections many", "is no list of numbers like 1,50"),
]


@pytest.mark.parametrize(("typed", "line"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_a_mistake_is_one_line_and_leaves_nothing(typed, line, tmp_path, monkeypatch, capsys):
    (tmp_path / "r.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIRESPEED_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("WIRESPEED_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(sys, "argv", ["wirespeed", *typed.split()])
    with pytest.raises(SystemExit) as ended:
        app.main()
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (2, 1), said
    assert said.startswith("wirespeed: ") and line in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.toml"]


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("run r.toml --nonsense", "No such option: --nonsense"),
        ("run r.toml --repeat many", "Invalid value for '--repeat': Input should be"),
        ("nonsense", "No such command 'nonsense'"),
    ],
)
def test_a_mistyped_option_is_told_without_a_box(typed, line, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["wirespeed", *typed.split()])
    with pytest.raises(SystemExit) as ended:
        app.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert line in said.splitlines()[-1]
    assert said.isascii(), said


@pytest.mark.parametrize("is_there", [True, False])
def test_a_report_is_opened_in_a_browser_where_there_is_one(is_there, tmp_path, monkeypatch):
    opened = []
    run_dir = tmp_path / "runs" / "20261122T000000Z-r-0001"
    run_dir.mkdir(parents=True)
    (run_dir / "run.json").write_text("{}")
    monkeypatch.setattr(run.webbrowser, "open", lambda url: opened.append(url) or is_there)
    if is_there:
        run.open_page(run_dir.name, tmp_path / "runs")
    else:
        with pytest.raises(RunError, match=r"no browser was found here; open .*report\.html"):
            run.open_page(run_dir.name, tmp_path / "runs")
    assert opened == [(run_dir / "derived" / "report.html").as_uri()]
