"""Counters of the processor in a run. The kernel's own events stand in for the processor's, which
most virtual machines lack."""

import subprocess
import sys

# The lab with events that every kernel counts in place of the processor's.
STAND_IN = """
from wirespeed.runner import counters
counters.EVENTS = {
    "instructions": "task-clock", "cycles": "task-clock", "cache_misses": "context-switches"
}
from wirespeed.cli.app import main
main()
"""


def run(checkout, *arguments):
    words = ["run", checkout.recipe(connections=[1], repeat=2), "--accept-noise", *arguments]
    return subprocess.run(
        [sys.executable, "-c", STAND_IN, *map(str, words)],
        env={**checkout.environment, "WIRESPEED_RUNS": str(checkout.runs)},
        cwd=checkout.root, text=True, capture_output=True, timeout=180, check=True,
    )  # fmt: skip


def test_events_of_the_processor_are_metrics_of_each_trial(checkout):
    run(checkout)
    assert checkout.run_json()["facts"]["counters"] == "task-clock, task-clock, context-switches"
    trials = checkout.trials()
    assert len(trials) == 2
    for trial in trials:
        found = trial["metrics"]
        assert found["server.instructions_per_request"] > 0
        assert found["server.instructions_per_cycle"] == 1.0
        assert found["server.cache_misses_per_request"] is not None
        # Its own window leaves the trial's alone.
        assert trial["window"]["length_ns"] > 0 and trial["valid"]


def test_a_budget_leaves_no_time_for_counting(checkout):
    run(checkout, "--budget", "10m")
    for trial in checkout.trials():
        assert "server.instructions_per_request" not in trial["metrics"]


def test_a_host_that_cannot_count_after_all_costs_no_trial(checkout):
    """The lab believes that an event exists; the agent refuses to count it."""
    pretend = (
        "counters.why_not = lambda host: ''\n"
        "counters.EVENTS = {'instructions': 'tea-breaks'}\n"
        "from wirespeed.cli"
    )
    program = STAND_IN.replace("from wirespeed.cli", pretend)
    recipe = checkout.recipe(connections=[1], repeat=2)
    process = subprocess.run(
        [sys.executable, "-c", program, "run", str(recipe), "--accept-noise"],
        env={**checkout.environment, "WIRESPEED_RUNS": str(checkout.runs)},
        cwd=checkout.root, text=True, capture_output=True, timeout=180, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert [trial["valid"] for trial in checkout.trials()] == [True, True]


def test_a_machine_without_counters_is_said_once(checkout):
    """Here, or on a machine that has them: the fact says which."""
    code, _, err = checkout.call("run", checkout.recipe(connections=[1]))
    assert code == 0, err
    facts = checkout.run_json()["facts"]["counters"]
    (trial,) = checkout.trials()
    assert ("server.instructions_per_request" in trial["metrics"]) == (not facts.startswith("none"))
    # Both come from the threads as they are at the window's edges, where the agent was in time.
    by_thread = {"server.context_switches_per_request", "server.fullest_thread"}
    assert by_thread <= set(trial["metrics"]) or by_thread.isdisjoint(trial["metrics"])
