"""Warm-up by stability: short windows of the real load until the rate is steady, up to a bound.

Ten seconds of load do not always warm a program with a just-in-time compiler, and one second wastes
nothing on NGINX. Which programs compile themselves cannot be seen from outside, so every server but
those known to need nothing goes on until three windows agree or the recipe's `warmup` is reached;
a JVM gets at least `warmup_least`.
"""

from __future__ import annotations

import time
from pathlib import Path

from wirespeed.recipe.model import WHOLE_SECOND_TOOLS, Recipe
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.generate import Generated, generate
from wirespeed.runner.server_session import ServerSession

WINDOW_S = 0.5
WHOLE_WINDOW_S = 1.0  # of generators that count in whole seconds
STABLE_SHARE = 0.02
STABLE_WINDOWS = 3
WARM_AT_ONCE = ("nginx",)  # compiled ahead of time: one window fills its caches
LONGEST_S = 60.0  # of a single answer, which a warm-up waits for to learn how long it takes
TIMEOUT_LEAST_S = 10.0  # a slow answer is latency; only one that does not come is an error
FIRST_ANSWER_S = 30.0  # until the first byte of a server that is ready but still cold
STEP_LONGEST_S = 5.0  # of the load before a window
TIMEOUT_ANSWERS = 5.0  # an answer that takes so many times its usual is lost
ANSWERS_BEFORE = 2.0  # of each connection, before the window
WINDOW_ANSWERS = 3.0  # a window in which requests are counted holds so many of them


def warm(session: ServerSession, planned: PlannedCell, folder: Path) -> list[float]:
    """Loads the server until it is warm; returns the rate of each window."""
    cap_s = session.schedule.times.warmup_s
    if cap_s <= 0:
        return []
    servers = [started.instance.tool for started in session.running]
    floor_s = session.schedule.times.warmup_least_s if "jvm" in servers else 0.0
    is_steady_at_once = all(tool in WARM_AT_ONCE for tool in servers)
    counts_seconds = is_in_whole_seconds(session.schedule.recipe)
    window_s = short_s(session.schedule.recipe)
    # The first is long: a cold server that meets new connections at every window only piles up.
    first_s = max(window_s, floor_s - (STABLE_WINDOWS - 1) * window_s)
    length_s = window_s if counts_seconds else first_s
    started = time.monotonic()
    rates: list[float] = []
    while True:
        length_s = length_s if counts_seconds else min(length_s, cap_s)
        done = generate(session, planned, folder, length_s, 0.0, timeout_s=LONGEST_S)
        rates.append(sum(figures.rps for figures in done.figures.values()))
        elapsed = time.monotonic() - started
        if is_awaited(done) and elapsed < (LONGEST_S if has_bytes(done) else FIRST_ANSWER_S):
            length_s = cap_s = max(2 * length_s, cap_s)
            continue
        learn(session, planned, done)
        length_s = window_s
        if elapsed + length_s > cap_s or is_steady_at_once:
            return rates
        if elapsed >= floor_s and is_stable(rates):
            return rates


def is_in_whole_seconds(recipe: Recipe) -> bool:
    """Whether a generator of the recipe takes no fraction of a second."""
    tools = {process.tool for process in recipe.process if process.role == "load"}
    return not tools.isdisjoint(WHOLE_SECOND_TOOLS)


def short_s(recipe: Recipe) -> float:
    """The length of a window of which several make a figure, or that counts events alone."""
    return WHOLE_WINDOW_S if is_in_whole_seconds(recipe) else WINDOW_S


def note_of(session: ServerSession, rates: list[float]) -> str:
    """One line where the warm-up ended before the rate stood still; what is measured after it may
    still be compiling, so it bounds nothing."""
    if not rates or all(started.instance.tool in WARM_AT_ONCE for started in session.running):
        return ""
    if is_stable(rates):
        return ""
    shown = ", ".join(f"{rate:,.0f}" for rate in rates[-STABLE_WINDOWS:])
    return (
        f"the warm-up did not settle in {session.schedule.times.warmup_s:g} s "
        f"(its last windows: {shown} requests/s); allow it more with plan.warmup"
    )


def is_stable(rates: list[float]) -> bool:
    last = rates[-STABLE_WINDOWS:]
    if len(last) < STABLE_WINDOWS or min(last) <= 0:
        return False
    return max(last) / min(last) - 1 <= STABLE_SHARE


def is_awaited(done: Generated) -> bool:
    """No answer is whole yet and nothing has failed: it is larger than the window, or the server
    is still cold. A window measured now would show that alone."""
    figures = done.figures.values()
    return bool(figures) and all(f.completed == 0 and f.errors == 0 for f in figures)


def has_bytes(done: Generated) -> bool:
    return any(f.bytes_per_second > 0 for f in done.figures.values())


def learn(session: ServerSession, planned: PlannedCell, done: Generated) -> None:
    """How long an answer takes: connections over rate, as Little's law says of a closed loop.

    A window without a whole answer teaches nothing.
    """
    delays = [f.in_flight / f.rps for f in done.figures.values() if f.rps > 0]
    if delays:
        session.answer_s[planned.cell.id] = max(delays)


def timeout_s(session: ServerSession, planned: PlannedCell) -> float:
    """The longest wait for an answer in this cell."""
    if planned.cell.id not in session.answer_s:
        return LONGEST_S
    wanted_s = TIMEOUT_ANSWERS * session.answer_s[planned.cell.id]
    return min(LONGEST_S, max(TIMEOUT_LEAST_S, wanted_s))


def step_s(session: ServerSession, planned: PlannedCell) -> float:
    """Load before the window. Where requests are counted it goes on until every new connection has
    had its first answers: a thousand connections at once wait for each other."""
    times = session.schedule.times
    own_s = min(times.warmup_s, times.step_warmup_s)
    if not own_s or not counts_requests(session.schedule.recipe, planned):
        return own_s
    answer_s = session.answer_s.get(planned.cell.id, 0.0)
    return max(own_s, min(STEP_LONGEST_S, ANSWERS_BEFORE * answer_s))


def window_s(session: ServerSession, planned: PlannedCell) -> float:
    """The planned window; longer where it would hold hardly a request and requests are counted."""
    planned_s = session.schedule.times.duration_s
    if not counts_requests(session.schedule.recipe, planned):
        return planned_s
    return max(planned_s, WINDOW_ANSWERS * session.answer_s.get(planned.cell.id, 0.0))


def counts_requests(recipe: Recipe, planned: PlannedCell) -> bool:
    """Whether a table shows this cell in something else than bytes."""
    bytes_only = {m.name for m in recipe.metric if m.field == "bytes_per_second"}
    for table in recipe.table:
        if all(planned.cell.axes[axis] in values for axis, values in table.where.items()):
            shown = {name.split(".")[0] for name in [table.value, *table.values] if name}
            if shown - bytes_only:
                return True
    return not recipe.table
