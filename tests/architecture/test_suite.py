"""What `./test` is made of: every case is counted, and a skip that is not listed fails the run."""

import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import instructions
import pytest
import rust
from components import ROOT
from suite import needs, results, running, skips, summary
from suite.results import Results, Skip
from suite.steps import Step, steps

SKIPS_MAX = 5
JUNIT = """<testsuites><testsuite>
<testcase classname="a.test_b" name="good" time="1.25"/>
<testcase classname="a.test_b" name="slow" time="1,003.5"/>
<testcase classname="a.test_b" name="wrong" time="0.1"><failure message="no"/></testcase>
<testcase classname="a.test_b" name="broken" time="0.1"><error message="no"/></testcase>
<testcase classname="a.test_b" name="absent" time="0"><skipped message="needs a card"/></testcase>
<testcase classname="a.test_b" name="silent" time="0"><skipped/></testcase>
</testsuite></testsuites>"""
CARGO = """     Running load/cli (/t/debug/deps/output-0123456789abcdef)

running 3 tests
test a_report ... ok

skipped: beside_wrk2: wrk2 is not installed
test beside_wrk2 ... ok
test by_hand ... ignored, takes an hour

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
     ended with 0 after 3.5 s
     Running bypass/xdp (/t/debug/deps/veth-0123456789abcdef)
test frames ... ok (1.2 s)
test queues ... FAILED
test card ... ignored, no card
test result: FAILED. 1 passed; 1 failed; 1 ignored
     ended with 101 after 9.0 s
"""


def test_junit_is_counted_case_by_case(tmp_path):
    (tmp_path / "one.xml").write_text(JUNIT)
    found = results.junit([tmp_path / "one.xml"])
    assert (found.passed, found.failed) == (2, 2)
    assert found.skips == [Skip("a.test_b.absent", "needs a card"), Skip("a.test_b.silent", "")]
    assert found.slowest(2) == [(1003.5, "a.test_b.slow"), (1.25, "a.test_b.good")]


def test_of_cargo_a_skip_that_its_runner_counts_as_passed_is_counted_as_skipped():
    found = results.cargo(CARGO)
    assert (found.passed, found.failed) == (2, 1)
    assert found.skips == [Skip("by_hand", "takes an hour"), Skip("card", "no card"),
                           Skip("beside_wrk2", "wrk2 is not installed")]
    assert found.slowest() == [(3.5, "load/cli/output"), (1.2, "bypass/xdp/veth::frames")]


def test_an_ignored_test_without_a_line_of_its_own_is_a_skip_too():
    found = results.cargo("test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured")
    assert (found.passed, len(found.skips)) == (3, 2)


PANIC = ["thread '<unnamed>' (7) panicked at tests/packets.rs:287:5:", "1 of 184 differ (Both):",
         "== core_dump " + "x" * 400]
FRAMES = ["stack backtrace:", *(f"   {number}: frame" for number in range(50)), "note: Some details are omitted"]


def excerpt_of(*lines):
    """What is quoted of a failed program behind its heading, each line without the two spaces before it."""
    heading, *quoted = rust.excerpt("\n".join(["     Running bypass/preload (/t/packets)", *lines, ""])).splitlines()
    assert heading == "     Running bypass/preload (/t/packets)"
    assert all(line.startswith("  ") for line in quoted)
    return [line[2:] for line in quoted]


def test_of_a_failed_program_each_failed_test_is_quoted_with_what_it_printed():
    passed = [f"test passed_{number} ... ok (0.1 s)" for number in range(60)]
    quoted = excerpt_of("test first ... ok (1.0 s)", "of the second", *PANIC, *FRAMES, "test second ... FAILED",
                        *passed, "of the third", "test third ... FAILED", *passed,
                        "test result: FAILED. 121 passed; 2 failed; 0 ignored")
    assert quoted == ["test second ... FAILED", "of the second", *PANIC[:2], PANIC[2][:300], FRAMES[-1],
                      "test third ... FAILED", "of the third"]


def test_of_a_long_output_the_lines_from_the_panic_on_are_quoted():
    before, after = [f"before {number}" for number in range(40)], [f"after {number}" for number in range(50)]
    ended = ["test long ... FAILED", "test result: FAILED. 0 passed; 1 failed; 0 ignored"]
    assert excerpt_of(*before, *PANIC[:1], *after, *ended) == [ended[0], PANIC[0], *after[:29]]
    assert excerpt_of(*before, *after, *ended) == [ended[0], *after[-30:]]


def test_of_cargos_own_runner_each_failed_section_is_quoted():
    listed = [f"test passed_{number} ... ok" for number in range(60)]
    assert excerpt_of("running 62 tests", *listed, "test one ... FAILED", "test two ... FAILED", "", "failures:", "",
                      "---- one stdout ----", "said by one", *FRAMES, "", "---- two stdout ----", *PANIC[:2], "", "",
                      "failures:", "    one", "    two", "", "test result: FAILED. 60 passed; 2 failed; 0 ignored") == [
        "---- one stdout ----", "said by one", FRAMES[-1], "---- two stdout ----", *PANIC[:2]]


def test_of_a_program_that_died_its_end_is_quoted_too():
    running = [f"running {number}" for number in range(60)]
    end = ["terminated by a signal", "     ended with -11 after 1.0 s"]
    assert excerpt_of("said", "test first ... FAILED", *running, *end) == [
        "test first ... FAILED", "said", "said", *running[-28:], *end]


def judged(found, codes=(0,), entries=(), texts=("output\n",)):
    step = Step("rust", 1, [], None)
    return running.judge(step, found, list(texts), list(codes), list(entries)), found


LISTED = [{"step": "rust", "reason": "wrk2", "why": "no package"}]


@pytest.mark.parametrize(("entries", "failed", "skipped"), [
    ([], 1, 0),
    (LISTED, 0, 1),
    ([dict(LISTED[0], step="java")], 1, 0),
    ([dict(LISTED[0], reason="wrk2 is absent")], 1, 0),
])
def test_a_skip_that_is_not_listed_is_a_failure(entries, failed, skipped):
    quote, found = judged(Results(2, 0, [Skip("compared", "wrk2 is not installed")]), entries=entries)
    assert (found.passed, found.failed, len(found.skips)) == (2, failed, skipped)
    assert bool(quote) == bool(failed)
    if failed:
        assert quote == ("skipped, and not listed in tests/skips.toml: compared: "
                         "wrk2 is not installed")


def test_a_runner_that_fails_without_a_failed_test_fails_the_step():
    quote, found = judged(Results(5), codes=(0, 2), texts=("fine\n", "cannot import\n"))
    assert found.failed == 1 and "cannot import" in quote and "fine" not in quote


def test_a_step_that_ran_no_test_fails():
    quote, found = judged(Results())
    assert found.failed == 1 and quote == "the step ran no test"


def test_the_list_is_short_and_each_entry_is_of_a_step():
    entries = skips.listed()
    assert len(entries) <= SKIPS_MAX
    assert {entry["step"] for entry in entries} <= {step.name for step in steps()}


def test_an_entry_of_the_list_without_its_reason_is_refused(tmp_path):
    path = tmp_path / "skips.toml"
    path.write_text('[[skip]]\nstep = "rust"\nreason = "x"\n')
    with pytest.raises(SystemExit, match="needs reason, step, why as text"):
        skips.listed(path)


def test_a_package_is_named_once_and_only_where_its_program_is_missing():
    packages = {"sh": "dash", "no-such-a": "thing", "no-such-b": "thing other",
                "libno-such.so.7": "library"}
    assert needs.missing_packages(packages) == ["thing", "other", "library"]


def test_every_program_that_a_test_may_skip_for_is_installed_or_listed():
    """`require_tool("x")` and the like name programs; each has its package, or its entry."""
    named = set()
    for path in [*(ROOT / "bypass").glob("*/tests/**/*.rs"), *(ROOT / "load").glob("*/tests/**/*.rs")]:
        named |= set(re.findall(r'(?:require_tool|is_installed)\("([^"]+)"\)', path.read_text()))
    listed = " ".join(entry["reason"] for entry in skips.listed())
    always = {"python3"}
    assert named and not [program for program in named - always
                          if program not in needs.PACKAGES and f"{program} is not" not in listed]


def test_a_count_of_instructions_may_differ_by_a_part_in_either_direction():
    recorded = {"request": 1_000, "segment": 500}
    assert instructions.complaints({"request": 1_030, "segment": 485}, recorded, 0.03) == []
    assert instructions.complaints({"request": 1_031, "segment": 484}, recorded, 0.03) == [
        "request: +3.1% (at most 3%)", "segment: -3.2% (at most 3%)"]
    assert instructions.complaints({"request": 1_000, "other": 7}, recorded, 0.03) == [
        "segment: counted None, recorded 500", "other: counted 7, recorded None"]


def test_counts_of_instructions_compare_as_far_as_the_code_is_the_same():
    own = "rustc 1.95.0 (59807616e 2026-04-14), x86_64-unknown-linux-gnu, glibc 2.36"
    assert instructions.allowed(own, own) == 0.03
    assert instructions.allowed(own, own.replace("2.36", "2.41")) == 0.25
    assert instructions.allowed(own, own.replace("1.95", "1.96")) == 0.25
    assert instructions.allowed(own, own.replace("x86_64", "aarch64")) is None


def test_each_count_of_instructions_is_recorded_and_counts_a_function_that_exists():
    known = tomllib.loads(instructions.RECORDED.read_text())
    assert list(known["instructions"]) == list(instructions.COUNTED)
    assert instructions.written(known["compiler"], known["instructions"]) == instructions.RECORDED.read_text()
    example = (ROOT / "bypass" / "shard" / "examples" / "ceiling" / "ends.rs").read_text()
    functions = {function for _, _, function in instructions.COUNTED.values()}
    assert all(f"#[inline(never)]\npub fn {function}(" in example for function in functions)


def test_the_end_names_failures_and_slow_tests_and_closes_with_the_counts():
    rust, lab = Step("rust", 1, [], None), Step("lab", 1, [], None)
    slow = [(seconds / 2, f"test_{seconds}") for seconds in range(12)]
    done = [(rust, Results(3, 1, [Skip("beside", "wrk2")], slow), "test a ... FAILED"),
            (lab, Results(4, 0, [], [(9.0, "story")]), "")]
    lines = summary.text(done, 61.4, 118.6).splitlines()
    assert lines[-2:] == ["61 s, 119 s of CPU", "7 passed, 1 failed, 1 skipped"]
    assert "── rust: what failed, from build/test/rust.txt" in lines and "test a ... FAILED" in lines
    assert "rust             5.5 s  test_11" in lines and "lab              9.0 s  story" in lines
    assert not [line for line in lines if "test_8" in line]
    assert len(summary.slowest(done, 10).splitlines()) == 11


def test_a_step_shows_the_cpu_that_it_took_and_that_was_taken_ahead_for_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "OUT", tmp_path)
    burns = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.6: pass"]
    first, second = (Step(name, 1, [command], lambda _, __: Results(1), ahead=ahead)
                     for name, command, ahead in (("first", ["true"], None), ("second", burns, burns)))
    before_s = running.cpu_s()
    assert [step for step, *_ in running.run_all([first, second], [], lambda: None)] == [first, second]
    taken = re.findall(r"^✔ (\w+) .* s +(\d+) s of CPU$", capsys.readouterr().out, re.M)
    assert [name for name, _ in taken] == ["first", "second"] and int(taken[1][1]) > int(taken[0][1])
    assert running.cpu_s() - before_s >= 1.2


@pytest.mark.parametrize("words", [["no-such-step"], ["rust", "no-such-step"]])
def test_an_unknown_step_is_refused(words):
    done = subprocess.run([sys.executable, ROOT / "test", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "test: unknown step 'no-such-step' (./test --list prints them)\n"


RUNS_SLOWLY = """
import runpy, sys
from pathlib import Path
root, out = map(Path, sys.argv[1:3])
sys.path.insert(0, str(root / "tests"))
from suite import needs, running
from suite.steps import Step
running.OUT = out
runpy.run_path(str(root / "test"), run_name="test")["heed_signals"]()
slow = ["sh", "-c", f"echo $$ >{out}/new && mv {out}/new {out}/number && exec sleep 600"]
"""
#: In a step, while it compiles ahead, while it installs.
STAGES = {
    "step": 'list(running.run_all([Step("slow", 1, [slow], None)], [], lambda: None))',
    "ahead": 'list(running.run_all([Step("quick", 1, [], None, ahead=slow, after="start")], [], lambda: None))',
    "needs": """
door = needs.front_door()
door.BUILD, door.say = out, lambda text: None
door.Builder._python = lambda builder, part: builder._run(part, slow)
needs.front_door, needs.missing_packages = lambda: door, list
list(running.run_all([Step("quick", 1, [], None)], [], needs.prepare))
""",
}


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("stage", STAGES)
def test_a_signal_that_ends_the_run_ends_what_it_has_started(stage, sign, tmp_path):
    runner = subprocess.Popen([sys.executable, "-c", RUNS_SLOWLY + STAGES[stage], ROOT, tmp_path],
                              stderr=subprocess.PIPE, text=True)
    number = tmp_path / "number"
    wait_until(number.exists)
    runner.send_signal(sign)
    assert runner.communicate(timeout=60)[1] == "test: stopped\n"
    assert runner.returncode == 128 + sign
    step = Path("/proc", number.read_text().strip())
    wait_until(lambda: not step.exists())


def wait_until(is_true):
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)
