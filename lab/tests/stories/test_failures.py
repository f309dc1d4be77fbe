"""Failures of a run: one clear line, nothing left, finished trials kept."""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE_S = 180  # a loaded two-core machine
MANY = 50  # rounds of a run that is ended early: it never ends before, however busy the machine
FAKES = Path(__file__).parents[1] / "fakes"


def one_line(err, part):
    """The line of the lab that names the cause."""
    lines = [line for line in err.splitlines() if part in line]
    assert len(lines) == 1, err
    return lines[0]


def test_a_run_measures_every_cell_and_leaves_nothing(checkout):
    process = checkout.start("run", checkout.recipe(repeat=2))
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert checkout.run_json()["state"] == "done"
    trials = checkout.trials()
    assert len(trials) == 6
    assert all(trial["metrics"]["rps"] > 0 for trial in trials)
    assert (checkout.latest / "derived" / "report.html").exists()
    assert checkout.nothing_left(process.pid)


def test_a_run_records_which_build_of_the_server_it_measured(checkout, tmp_path):
    program = tmp_path / "my-server"
    server = Path(__file__).parents[1] / "fakes" / "server.py"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo my-server 4.2 && exit\n'
        f'exec {sys.executable} {server} "$@"\n'
    )
    program.chmod(0o755)
    recipe = checkout.recipe(connections=[1], python=program, server="--", server_options=[])
    text = recipe.read_text().replace(', "--", "--port"', ', "--port"')
    words = f'"{program}", "--version"'
    recipe.write_text(text.replace('role = "server"', f'role = "server"\nversion = [{words}]'))
    code, _, err = checkout.call("run", recipe)
    assert code == 0, err
    told = checkout.run_json()["facts"]["program app"]
    digest = hashlib.sha256(program.read_bytes()).hexdigest()[:12]
    assert told == f"my-server 4.2 ({program}, sha256 {digest})"
    assert isinstance(checkout.run_json()["audit"], list)
    assert "audit" not in checkout.run_json()["facts"]
    assert told in (checkout.latest / "derived" / "report.html").read_text()


def test_ctrl_c_in_a_trial_keeps_what_is_finished_and_resume_completes(checkout, interrupt):
    recipe = checkout.recipe(server_options=["--fork"])
    checkout.hold()
    process = checkout.start("run", recipe)
    checkout.wait_for_trials(1, process)
    interrupt(process)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    checkout.go_on()
    line = one_line(err, "stopped")
    assert "finished trials are kept; go on with: wirespeed run --resume" in line
    assert checkout.nothing_left(process.pid)
    assert checkout.run_json()["state"] == "interrupted"
    before = {trial["key"]: trial["t_start"] for trial in checkout.trials()}
    folders = [p for p in checkout.latest.glob("trials/*") if not (p / "trial.json").exists()]
    assert folders == []
    code, _, err = checkout.call("run", "--resume", checkout.latest.name)
    assert code == 0, err
    after = {trial["key"]: trial["t_start"] for trial in checkout.trials()}
    assert len(after) == 3
    assert all(after[key] == start for key, start in before.items())


def test_kill_9_of_the_lab_leaves_no_process_and_recover_tidies_up(checkout):
    recipe = checkout.recipe(server_options=["--fork"])
    checkout.hold()
    process = checkout.start("run", recipe)
    checkout.wait_for_trials(1, process)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert checkout.nothing_left(process.pid)
    checkout.go_on()
    assert checkout.run_json()["state"] == "running"
    name = checkout.latest.name
    code, out, _ = checkout.call("recover")
    assert code == 0
    assert f"run {name} was cut off; go on with: wirespeed run --resume {name}" in out
    assert checkout.run_json()["state"] == "interrupted"
    code, _, err = checkout.call("run", "--resume", "latest")
    assert code == 0, err
    assert len(checkout.trials()) == 3


def test_a_run_that_was_killed_is_mentioned_by_the_next(checkout):
    recipe = checkout.recipe(duration="500ms", repeat=MANY)
    process = checkout.start("run", recipe)
    checkout.wait_for_trials(1, process)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    name = checkout.latest.name
    assert checkout.nothing_left(process.pid)
    code, _, err = checkout.call("run", recipe, "--only", "connections=1", "--repeat", "1")
    assert code == 0, err
    assert f"the run {name} was cut off" in one_line(err, "cut off")


def test_a_server_that_dies_is_a_result_and_is_not_tried_to_the_end(checkout):
    recipe = checkout.recipe(connections=[1, 2], repeat=5, server_options=["--die-after", "3"])
    process = checkout.start("run", recipe)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    line = one_line(err, "stayed invalid")
    assert "app-0 died (exit code 3): the fake server dies as requested" in line
    trials = checkout.trials()
    # Each failure is a trial of its own, nothing is repeated until it works, and after the third
    # of a cell in the same words its last two are not tried.
    assert [trial["valid"] for trial in trials] == [False] * 6
    assert {trial["attempt"] for trial in trials} == {1}
    assert err.count("failed 3 times the same way and is left") == 2
    assert "trial 7 (connections" in err or "trial 8 (connections" in err
    assert checkout.nothing_left(process.pid)


def test_a_server_that_never_becomes_ready_ends_the_run_with_what_it_said(checkout):
    recipe = checkout.recipe(server_options=["--status", "503"])
    process = checkout.start("run", recipe)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "status 503, wanted 200" in one_line(err, "never became ready")
    assert checkout.run_json()["state"] == "failed"
    assert checkout.nothing_left(process.pid)


def test_a_server_that_listens_but_never_answers_is_not_ready(checkout):
    recipe = checkout.recipe(server_options=["--silent"], within="20s")
    code, _, err = checkout.call("run", recipe)
    assert code == 1
    assert "timed out" in one_line(err, "never became ready")


def test_a_server_with_the_wrong_payload_is_not_ready(checkout):
    recipe = checkout.recipe(server_options=["--payload", "15"])
    code, _, err = checkout.call("run", recipe)
    assert code == 1
    assert "a body of 15 bytes, wanted 16" in one_line(err, "never became ready")


def test_a_port_in_use_is_named_with_the_remedy(checkout):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = checkout.call("run", checkout.recipe(port=port))
    assert code == 1
    assert "Address already in use" in one_line(err, f"needs port {port}")


def test_a_server_program_that_does_not_exist_is_named(checkout):
    code, _, err = checkout.call("run", checkout.recipe(python="/nowhere/python"))
    assert code == 1
    one_line(err, "program /nowhere/python not found")


def test_a_generator_that_fails_is_reported_with_its_last_line(checkout):
    checkout.environment["WIRESPEED_FAKE_EXIT"] = "1"
    code, _, err = checkout.call("run", checkout.recipe(connections=[1]))
    assert code == 1
    assert "the fake generator fails as requested" in one_line(err, "stayed invalid")


def test_a_generator_that_was_called_wrongly_is_tried_once_a_cell(checkout):
    checkout.environment["WIRESPEED_FAKE_EXIT"] = "2"
    code, _, err = checkout.call("run", checkout.recipe(connections=[1, 2, 3], repeat=5))
    assert code == 1
    assert [trial["valid"] for trial in checkout.trials()] == [False] * 3
    one_line(err, "would fail the same way each time and is left")


def test_a_wrong_path_is_found_with_one_request_and_not_measured(checkout):
    recipe = checkout.recipe(connections=[1, 2], repeat=5, server_options=["--only", "/"])
    recipe.write_text(recipe.read_text().replace("{{ app.port }}/", "{{ app.port }}/no-such-file"))
    code, _, err = checkout.call("run", recipe)
    assert code == 1
    trials = checkout.trials()
    assert len(trials) == 2 and all(not trial["metrics"] for trial in trials)
    assert "/no-such-file: status 404" in one_line(err, "stayed invalid")


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of its own needs root")
def test_a_disk_that_is_full_from_the_start_is_one_line(checkout):
    recipe = checkout.recipe(connections=[1])
    # Checkout and lab may lie below /tmp, where the full disk is put: they are mounted elsewhere.
    shelter = Path(f"/dev/shm/full-disk-test-{os.getpid()}")
    kept, home = shelter / "checkout", Path(__file__).parents[3]
    for folder in (kept, shelter / "home"):
        folder.mkdir(parents=True)
    lab = f"{sys.executable} -m wirespeed run {kept}/recipes/{recipe.name} --runs /tmp/runs"
    script = (
        f"mount --bind {checkout.root} {kept} && mount --bind {home} {shelter}/home && "
        "mount -t tmpfs -o size=64k tmpfs /tmp && mount --bind /tmp /var/tmp && "
        f"mkdir -p {home} && mount --bind {shelter}/home {home} && cd /tmp && "
        f"{{ cat /dev/zero > filler; WIRESPEED_ROOT={kept} exec {lab} --accept-noise; }}"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True,
        env={**checkout.environment, "WIRESPEED_LOCK": str(shelter / "lock")},
        timeout=PATIENCE_S,
    )  # fmt: skip
    shutil.rmtree(shelter)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    one_line(done.stderr, "the disk is full")


def test_a_server_that_ignores_term_is_killed_and_that_is_said(checkout):
    recipe = checkout.recipe(connections=[1], server_options=["--ignore-term"])
    process = checkout.start("run", recipe)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    one_line(err, "app-0 did not end on SIGTERM")
    assert checkout.nothing_left(process.pid)


def test_two_runs_on_one_machine_exclude_each_other(checkout, interrupt):
    process = checkout.start("run", checkout.recipe(duration="20s"))
    deadline_trials = checkout.recipe(name="other")
    checkout_runs = checkout.runs
    while not list(checkout_runs.glob("*/trials")):
        assert process.poll() is None
        time.sleep(0.01)
    code, _, err = checkout.call("run", deadline_trials)
    interrupt(process)
    process.communicate(timeout=PATIENCE_S)
    assert code == 1
    one_line(err, "is measuring on this machine")


#: The lab, which asks at each change of a run's state what another command would see.
ASKED = """
from wirespeed.results import store
from wirespeed.runner import recover
write = store.write_run

def written(run_dir, run):
    write(run_dir, run)
    assert recover.cut_off(run_dir.parent) == [], run.state

store.write_run = written
from wirespeed.cli.app import main
main()
"""


def test_a_run_that_begins_or_goes_on_is_never_one_that_was_cut_off(checkout):
    """It said that it was running before it was held: `recover`, called in between, removed the
    files of its programs and called it interrupted."""
    recipe = checkout.recipe(connections=[1])
    for words in (("run", recipe), ("run", "--resume", "latest", "--add-rounds", "1")):
        done = subprocess.run(
            [sys.executable, "-c", ASKED, *map(str, words), "--accept-noise"],
            env={**checkout.environment, "WIRESPEED_RUNS": str(checkout.runs)},
            cwd=checkout.root, text=True, capture_output=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert checkout.run_json()["state"] == "done"


def test_without_cgroups_nothing_is_left_either(checkout, interrupt):
    checkout.environment["WIRESPEED_NO_CGROUPS"] = "1"
    recipe = checkout.recipe(duration="500ms", server_options=["--fork"], repeat=MANY)
    process = checkout.start("run", recipe)
    checkout.wait_for_trials(1, process)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert checkout.nothing_left(process.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_ends_the_run_and_resume_completes_it(checkout, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], check=True)
    try:
        checkout.runs = small / "runs"
        checkout.hold()
        process = checkout.start("run", checkout.recipe(connections=[1, 2, 3, 4]))
        checkout.wait_for_trials(1, process)
        filler = small / "filler"
        fill(filler)
        checkout.go_on()
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
        one_line(err, "the disk is full")
        assert checkout.nothing_left(process.pid)
        kept = len(checkout.trials())
        assert kept >= 1
        filler.unlink()
        code, _, err = checkout.call("run", "--resume", "latest")
        assert code == 0, err
        assert len(checkout.trials()) == 4
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
@pytest.mark.parametrize("size_kib", [16, 36, 64, 120])
def test_a_disk_that_is_full_anywhere_is_one_line(checkout, tmp_path, size_kib):
    """Whichever file is the one that does not fit: of the plan, a trial, a window or the report."""
    small = tmp_path / "small"
    small.mkdir()
    size = f"size={size_kib}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", small], check=True)
    try:
        checkout.runs = small / "runs"
        process = checkout.start("run", checkout.recipe(repeat=3))
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1 and "Traceback" not in err, err
        assert "full" in err.splitlines()[-1] or "No space left" in err.splitlines()[-1], err
        assert checkout.nothing_left(process.pid)
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_no_command_prints_a_traceback_on_a_full_disk(checkout, tmp_path):
    code, _, err = checkout.call("run", checkout.recipe(connections=[1]))
    assert code == 0, err
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", full], check=True)
    try:
        fill(full / "filler")
        report = checkout.latest / "derived" / "report.html"
        for words in (
            ("report", "latest", "--ci", full / "ci"),
            ("init", full / "mine.toml", "--command", "./s {port}", "--no-try"),
            ("reproduce", report, "--runs", full / "runs"),
            ("run", checkout.recipe(connections=[1]), "--runs", full / "runs"),
        ):
            code, _, err = checkout.call(*words)
            assert code in (1, 2) and "Traceback" not in err, (words, err)
            assert err.splitlines()[-1].startswith("wirespeed: "), (words, err)
    finally:
        subprocess.run(["umount", "-l", full], check=True)


def fill(path: Path):
    """Takes every block that is left."""
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


@pytest.mark.parametrize("cgroups", [True, False], ids=["cgroups", "no-cgroups"])
def test_a_server_that_makes_itself_a_daemon_is_to_stay_in_the_foreground(checkout, cgroups):
    if not cgroups:
        checkout.environment["WIRESPEED_NO_CGROUPS"] = "1"
    process = checkout.start("run", checkout.recipe(server_options=["--daemon"]))
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    one_line(err, "start it in the foreground, without the option that makes it a daemon")
    assert "left its process behind and ended (exit code 0)" in err
    assert checkout.nothing_left(process.pid), "the daemon has ended too"


def test_a_server_that_ends_at_once_without_an_error_says_its_last_words(checkout, tmp_path):
    """It was said to have left a process behind, and not what it had printed."""
    server = tmp_path / "server.py"
    server.write_text("print('no configuration found')")
    code, _, err = checkout.call("run", checkout.recipe(connections=[1], server=server))
    assert code == 1
    one_line(err, "app-0 ended (exit code 0): no configuration found; start it in the foreground")


def test_a_run_whose_reader_has_gone_is_measured_and_kept(checkout):
    """`run … | head`: the tables come last, so there is nothing to read before they are measured,
    and to throw the measurement away for a closed pipe would lose it."""
    process = checkout.start("run", checkout.recipe())
    process.stdout.close()
    err = process.stderr.read()
    process.wait(PATIENCE_S)
    assert "Traceback" not in err and "BrokenPipe" not in err
    assert checkout.run_json()["state"] == "done" and len(checkout.trials()) == 3
    code, out, _ = checkout.call("report", "latest")
    assert code == 0 and out


def test_a_run_that_lies_elsewhere_goes_on_there_next_to_a_file_called_latest(checkout, tmp_path):
    """A file of that name next to it was replaced by a link."""
    assert checkout.call("run", checkout.recipe(connections=[1]))[0] == 0
    latest, home = checkout.latest, tmp_path / "home"
    shutil.copytree(latest, home / "mine")
    (home / "latest").write_text("kept")
    code, _, err = checkout.call("run", "--resume", home / "mine", "--add-rounds", "1")
    assert code == 0, err
    assert len(list(home.glob("mine/trials/*/trial.json"))) == 2
    assert (home / "latest").read_text() == "kept" and checkout.latest == latest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_term_and_a_closed_terminal_end_a_run_like_ctrl_c(checkout, number):
    process = checkout.start("run", checkout.recipe(duration="700ms", repeat=MANY))
    checkout.wait_for_trials(1, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number, err
    one_line(err, "stopped")
    assert checkout.run_json()["state"] == "interrupted"
    assert checkout.nothing_left(process.pid)


def test_a_run_on_another_machine_is_not_resumed(checkout, interrupt):
    checkout.hold()
    process = checkout.start("run", checkout.recipe())
    checkout.wait_for_trials(1, process)
    interrupt(process)
    process.communicate(timeout=PATIENCE_S)
    checkout.go_on()
    path = checkout.latest / "run.json"
    path.write_text(path.read_text().replace('"kernel": "', '"kernel": "other-'))
    code, _, err = checkout.call("run", "--resume", "latest")
    assert code == 2
    one_line(err, "this machine differs")
    code, _, err = checkout.call("run", "--resume", "latest", "--force")
    assert code == 0, err
    assert any("kernel was other-" in one for one in checkout.run_json()["thinned"])


def test_a_run_whose_copy_of_the_recipe_was_edited_does_not_go_on_unasked(checkout):
    """Half of a cell's trials would have another command."""
    code, _, err = checkout.call("run", checkout.recipe(connections=[1]))
    assert code == 0, err
    path = checkout.latest / "recipe.toml"
    path.write_text(path.read_text().replace('"-c"', '"-v", "-c"'))
    words = ("run", "--resume", "latest", "--add-rounds", "1")
    code, _, err = checkout.call(*words)
    assert code == 2, err
    one_line(err, "recipe.toml is not the recipe that began the run; --force")


def test_rounds_of_another_build_are_not_added_to_a_run_unasked(checkout):
    code, _, err = checkout.call("run", checkout.recipe(connections=[1]))
    assert code == 0, err
    path = checkout.latest / "run.json"
    run = json.loads(path.read_text())
    (name,) = [name for name in run["facts"] if name.startswith("program ")]
    run["facts"][name] = "1.0 (/somewhere, sha256 0)"
    path.write_text(json.dumps(run))
    before = path.read_text(), (checkout.latest / "plan.jsonl").read_text()
    words = ("run", "--resume", "latest", "--add-rounds", "1")
    code, _, err = checkout.call(*words)
    assert code == 2, err
    one_line(err, f"{name} was 1.0 (/somewhere, sha256 0), is ")
    after = json.loads(path.read_text()), (checkout.latest / "plan.jsonl").read_text()
    assert after == (json.loads(before[0]), before[1]), "a refused run stays as it was"
    code, _, err = checkout.call(*words, "--force")
    assert code == 0, err
    told = checkout.run_json()["thinned"]
    assert any("Builds are mixed" in one and name in one for one in told), told
    assert any("--accept-noise" in one for one in told)


def test_a_run_whose_files_were_changed_does_not_go_on_unasked(checkout):
    """Half of a cell's trials would have another configuration."""
    own = checkout.root / "recipes" / "server.py"
    shutil.copy(FAKES / "server.py", own)
    code, _, err = checkout.call("run", checkout.recipe(connections=[1], server=own))
    assert code == 0, err
    own.write_text(own.read_text() + "\n# another\n")
    words = ("run", "--resume", "latest", "--add-rounds", "1")
    code, _, err = checkout.call(*words)
    assert code == 2, err
    one_line(err, "this build differs from the one that began the run: file server.py was sha256 ")
    code, _, err = checkout.call(*words, "--force")
    assert code == 0, err


def test_rounds_are_not_added_while_another_run_has_the_machine(checkout):
    code, _, err = checkout.call("run", checkout.recipe(connections=[1]))
    assert code == 0, err
    paths = [checkout.latest / name for name in ("run.json", "plan.jsonl")]
    before = [path.read_text() for path in paths]
    with open(checkout.environment["WIRESPEED_LOCK"], "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, err = checkout.call("run", "--resume", "latest", "--add-rounds", "1")
    assert code == 1, err
    one_line(err, "is measuring on this machine")
    assert [path.read_text() for path in paths] == before, "a refused run stays as it was"


def test_a_complete_run_is_not_resumed(checkout):
    assert checkout.call("run", checkout.recipe(connections=[1]))[0] == 0
    code, _, err = checkout.call("run", "--resume", "latest")
    assert code == 2
    assert "--add-rounds N" in one_line(err, "is complete")


def test_a_complete_run_takes_more_rounds(checkout):
    assert checkout.call("run", checkout.recipe(connections=[1, 2], repeat=2))[0] == 0
    before = {trial["key"]: trial["t_start"] for trial in checkout.trials()}
    code, _, err = checkout.call("run", "--resume", "latest", "--add-rounds", "2")
    assert code == 0, err
    after = {trial["key"]: trial["t_start"] for trial in checkout.trials()}
    assert len(after) == 8 and all(after[key] == start for key, start in before.items())
    assert sorted(trial["round"] for trial in checkout.trials()) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert checkout.run_json()["analyses"] == 2
    code, _, err = checkout.call("run", "some", "--add-rounds", "2")
    assert code == 2
    one_line(err, "--add-rounds: needs --resume")


def test_the_scratch_folder_is_memory_where_there_is_some(checkout):
    assert checkout.call("run", checkout.recipe(connections=[1]))[0] == 0
    assert not list(Path("/dev/shm").glob(f"wirespeed-{checkout.latest.name}"))
    shutil.rmtree(checkout.runs)


def prepared(checkout, *words):
    recipe = checkout.recipe(connections=[1])
    text = recipe.read_text()
    given = ", ".join(f'"{word}"' for word in words)
    recipe.write_text(text.replace('role = "server"', f'role = "server"\nprepare = [{given}]'))
    return recipe


def test_a_server_is_prepared_before_it_starts(checkout):
    server = Path(__file__).parents[1] / "fakes" / "server.py"
    recipe = prepared(checkout, "cp", server, "{{ run.tmp }}/prepared.py")
    recipe.write_text(
        recipe.read_text().replace(f'"{server}", "--port"', '"{{ run.tmp }}/prepared.py", "--port"')
    )
    process = checkout.start("run", recipe)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert [trial["valid"] for trial in checkout.trials()] == [True]
    assert checkout.nothing_left(process.pid)


def test_a_preparation_that_fails_ends_the_run_with_what_it_said(checkout):
    recipe = prepared(checkout, "sh", "-c", "sleep 500 & echo no database here >&2; exit 7")
    process = checkout.start("run", recipe)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    line = one_line(err, "cannot be prepared")
    assert "app-0 cannot be prepared: sh failed (exit code 7): no database here" in line
    assert checkout.nothing_left(process.pid)


@pytest.mark.parametrize(
    ("line", "within", "code"), [("listening", "60s", 0), ("never said", "1s", 1)]
)
def test_a_server_may_say_in_its_output_that_it_is_ready(checkout, line, within, code):
    server = Path(__file__).parents[1] / "fakes" / "server.py"
    recipe = checkout.recipe(connections=[1])
    text = recipe.read_text()
    start = text.index("ready.http")
    end = text.index("\n", text.index("ready.within"))
    text = text[:start] + f'ready.log = "^{line}$"\nready.within = "{within}"' + text[end:]
    shell = (
        f"{sys.executable} {server} --port {{{{ port }}}} & "
        "until (echo > /dev/tcp/127.0.0.1/{{ port }}) 2> /dev/null; do sleep 0.1; done; "
        "echo listening; wait"
    )
    words = f'"{sys.executable}", "{server}", "--port", "{{{{ port }}}}"'
    recipe.write_text(text.replace(words, f'"bash", "-c", "{shell}"'))
    process = checkout.start("run", recipe)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    if code:
        missing = "app-0 never became ready: look for '^never said$' in its output: no line of it"
        assert missing in one_line(err, "never became ready")


FAKE_WRK = """#!{python}
# Prints as wrk does: a hundred requests per second in its first run, a hundred more in each after.
import pathlib, sys, time
if "-d" not in sys.argv:  # asked for its version
    sys.exit(1)
calls = pathlib.Path(__file__).with_name("calls")
with calls.open("a") as file:  # one that is ended here, because it started late, takes nothing away
    file.write("x")
rps = 100 * calls.stat().st_size
time.sleep(float(sys.argv[sys.argv.index("-d") + 1].rstrip("s")))
print("  Thread Stats   Avg      Stdev     Max   +/- Stdev")
print("    Latency     1.00ms    1.00ms   2.00ms   93.50%")
print(f"  {{rps}} requests in 1.00s, 1.00MB read")
print(f"Requests/sec:  {{rps}}.00")
print("Transfer/sec:      1.00MB")
"""


def test_a_trial_reports_its_window_and_not_its_warm_up(checkout, tmp_path):
    """Both outputs were in one file, and the first line that matched was the warm-up's."""
    program = tmp_path / "bin" / "wrk"
    program.parent.mkdir()
    program.write_text(FAKE_WRK.format(python=sys.executable))
    program.chmod(0o755)
    checkout.environment["PATH"] = f"{program.parent}:{checkout.environment['PATH']}"
    recipe = checkout.recipe(connections=[1], warmup="100ms", duration="1s")
    text = recipe.read_text().replace('tool = "load"', 'tool = "wrk"')
    recipe.write_text(text.replace('"-d", "{{ duration }}",', ""))
    code, _, err = checkout.call("run", recipe)
    assert code == 0, err
    (trial,) = checkout.trials()
    calls = len((program.parent / "calls").read_text())
    assert calls >= 2 and trial["metrics"]["rps"] == 100 * calls, err
    (printed,) = checkout.latest.glob("trials/*/load-gen-0.out")
    assert printed.read_text().count("Requests/sec") == 1


def test_exports_of_the_shell_reach_no_measured_program(checkout, tmp_path):
    """EF_POLL_USEC=0 in a shell changed a contender and was not recorded."""
    kept = tmp_path / "environment"
    recipe = checkout.recipe(connections=[1])
    text = recipe.read_text()
    text = text.replace("inherit = [", 'inherit = ["WANTED", ', 1)
    start = f'argv = ["{sys.executable}", "{FAKES / "server.py"}"'
    assert start in text
    wrapped = (
        f'argv = ["sh", "-c", "env > {kept}; exec \\"$@\\"", "sh", ' + start[len("argv = [") :]
    )
    recipe.write_text(text.replace(start, wrapped))
    checkout.environment |= {"EF_POLL_USEC": "0", "JAVA_TOOL_OPTIONS": "-Xint", "WANTED": "secret"}
    code, _, err = checkout.call("run", recipe)
    assert code == 0, err
    # The shell that runs the tests may export more.
    assert "EF_POLL_USEC, JAVA_TOOL_OPTIONS" in one_line(err, "measured programs do not get ")
    found = dict(line.split("=", 1) for line in kept.read_text().splitlines())
    assert found["WANTED"] == "secret" and found["LANG"] == "C.UTF-8" and "HOME" in found
    assert not {"EF_POLL_USEC", "JAVA_TOOL_OPTIONS", "COLUMNS"} & found.keys()
    told = checkout.run_json()["facts"]["environment WANTED"]
    assert told.startswith("sha256 ") and "secret" not in json.dumps(checkout.run_json())
    checkout.environment["WANTED"] = "another"
    code, _, err = checkout.call("run", "--resume", "latest", "--add-rounds", "1")
    assert code == 2 and "environment WANTED was sha256" in err


def test_a_lost_agent_is_started_again_and_costs_no_trial(checkout):
    """It ended a run of hours."""
    checkout.hold()
    process = checkout.start("run", checkout.recipe(connections=[1], repeat=4))
    checkout.wait_for_trials(1, process)
    (agent,) = agents_of(process)
    os.kill(agent, signal.SIGKILL)
    checkout.go_on()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    one_line(err, "its site is opened again, and the run goes on")
    assert [trial["valid"] for trial in checkout.trials()] == [True] * 4
    assert checkout.run_json()["state"] == "done"
    assert checkout.nothing_left(process.pid)


def agents_of(process):
    """The lab's children that run an agent."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children]


def test_a_user_that_does_not_exist_is_one_line_before_anything_is_started(checkout):
    recipe = checkout.recipe(connections=[1])
    recipe.write_text(recipe.read_text().replace('name = "app"', 'name = "app"\nuser = "nobdoy"'))
    code, _, err = checkout.call("run", recipe)
    assert code == 2 and "process.app.user: user nobdoy: not found on this host" in err
    assert not checkout.runs.exists()


@pytest.mark.parametrize(("fail_at", "valid", "code"), [("3", 4, 0), ("3,4", 3, 1)])
def test_a_start_that_fails_costs_its_trial_and_not_the_run(
    checkout, tmp_path, fail_at, valid, code
):
    """One failed start of a server ended a run of hours. It is started once more."""
    options = ("--starts", tmp_path / "starts", "--fail-at", fail_at)
    recipe = checkout.recipe(connections=[1], repeat=4, server_options=options)
    found, _, err = checkout.call("run", recipe)
    assert found == code, err
    assert "it is started once more" in err
    assert [trial["valid"] for trial in checkout.trials()].count(True) == valid
    assert len(checkout.trials()) == 4 and checkout.run_json()["state"] == "done"
    if code:
        assert "this start fails as requested" in one_line(err, "stayed invalid")


def test_a_first_start_that_fails_ends_the_run_at_once(checkout, tmp_path):
    options = ("--starts", tmp_path / "starts", "--fail-at", "1")
    code, _, err = checkout.call("run", checkout.recipe(server_options=options))
    assert code == 1 and "this start fails as requested" in err
    assert (tmp_path / "starts").read_text() == "x"
