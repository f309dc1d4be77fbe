"""The duration of warm-up and window depends on the server and its responses."""

from types import SimpleNamespace

import pytest

from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import Place
from wirespeed.runner import warm
from wirespeed.runner.budget import Times


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def recipe_of(value="rps"):
    return Recipe.model_validate(
        {
            "wirespeed": 2,
            "name": "some",
            "axes": {"connections": [50]},
            "process": [
                {"name": "app", "role": "server", "argv": ["app"]},
                {"name": "gen", "role": "load", "tool": "load", "argv": ["http://x/"]},
            ],
            "metric": [
                {"name": "rps", "from": "gen"},
                {"name": "throughput", "from": "gen", "field": "bytes_per_second"},
            ],
            "table": [{"rows": "connections", "value": value}],
        }
    )


def session_of(tool="command", value="rps", warmup_s=20.0):
    times = Times(0.0, warmup_s, 1.0, 0.0)
    running = [SimpleNamespace(instance=SimpleNamespace(tool=tool, role="server"))]
    schedule = SimpleNamespace(times=times, recipe=recipe_of(value))
    return SimpleNamespace(schedule=schedule, running=running, answer_s={}, place=Place)


CELL = SimpleNamespace(cell=SimpleNamespace(id="c1", axes={"connections": 50}))


@pytest.fixture
def loaded(monkeypatch):
    """Warms a session up against a server whose windows give these figures."""

    def run(session, figures):
        clock, lengths = Clock(), []

        def generate(_session, _planned, _folder, length_s, _warmup_s, timeout_s):
            assert timeout_s >= 60
            clock.now += length_s
            lengths.append(length_s)
            return SimpleNamespace(figures={"gen-0": figures(len(lengths), length_s)})

        monkeypatch.setattr(warm, "generate", generate)
        monkeypatch.setattr(warm, "time", clock)
        return warm.warm(session, CELL, None), lengths

    return run


def figures(rps, completed=100, bytes_per_second=1e6, errors=0):
    return SimpleNamespace(
        rps=rps, completed=completed, bytes_per_second=bytes_per_second, in_flight=50, errors=errors
    )


def nothing_yet(errors=0):
    return figures(0.0, 0, 0.0, errors)


def test_a_server_with_a_compiler_of_its_own_is_warmed_until_steady(loaded):
    """Node, .NET, PyPy, PHP: the lab cannot know that they compile while they run."""
    rates, _ = loaded(session_of(), lambda number, _: figures(min(1000, 300 * number)))
    assert rates == [300, 600, 900, 1000, 1000, 1000]


def test_nginx_is_warm_after_one_window(loaded):
    rates, _ = loaded(session_of("nginx"), lambda number, _: figures(300 * number))
    assert rates == [300]


def test_the_warm_up_waits_for_the_first_whole_answer(loaded):
    """50 connections × 100 MB at 1.5 GB/s take 3.3 s: longer than its window and any timeout."""

    def answering(_number, length_s):
        return figures(15.0, 45) if length_s >= 3.3 else figures(0.0, 0, 1.5e9)

    session = session_of("nginx", "throughput")
    _, lengths = loaded(session, answering)
    assert max(lengths) >= 3.3
    assert session.answer_s["c1"] == pytest.approx(50 / 15)
    assert warm.timeout_s(session, CELL) == pytest.approx(5 * 50 / 15)
    # Throughput is bytes in the window, whole answers or not; requests must fit into it.
    assert warm.window_s(session, CELL) == 1.0
    session.schedule.recipe = recipe_of("rps")
    assert warm.window_s(session, CELL) == pytest.approx(10.0)


def test_a_cell_without_a_warm_up_of_its_own_waits_for_its_answers_all_the_same():
    """Of a session that walks several payloads only the first is warmed up; 50 x 10 MB over a link
    of 2.4 Gb/s take 1.7 s, and some of them more than the generator's own timeout of 2 s."""
    session = session_of("nginx", "throughput")
    assert warm.timeout_s(session, CELL) == warm.LONGEST_S
    none_whole = SimpleNamespace(figures={"gen-0": figures(0.0, 0, 3e8)})
    warm.learn(session, CELL, none_whole)
    assert warm.timeout_s(session, CELL) == warm.LONGEST_S
    warm.learn(session, CELL, SimpleNamespace(figures={"gen-0": figures(29.0, 60, 3e8)}))
    assert warm.timeout_s(session, CELL) == warm.TIMEOUT_LEAST_S
    warm.learn(session, CELL, none_whole)
    assert warm.timeout_s(session, CELL) == warm.TIMEOUT_LEAST_S


def test_short_answers_leave_the_window_alone(loaded):
    session = session_of("nginx")
    loaded(session, lambda number, _: figures(50_000.0))
    assert warm.timeout_s(session, CELL) == 10.0, "a slow answer is latency, not an error"
    assert warm.window_s(session, CELL) == 1.0
    assert warm.step_s(session, CELL) == 0.25


def test_a_cold_server_is_waited_for(loaded):
    """1,000 connections to a JVM that has a fifth of a core: no answer in the first windows, and
    a window measured then would be nothing but timeouts."""
    session = session_of("jvm", warmup_s=2.0)
    rates, lengths = loaded(session, lambda n, _: nothing_yet() if n < 3 else figures(140.0))
    assert rates[:2] == [0.0, 0.0] and rates[-1] == 140.0
    assert lengths[1] == 2 * lengths[0]
    assert session.answer_s["c1"] == pytest.approx(50 / 140)
    # The first answers of all connections are not what is measured.
    assert warm.step_s(session, CELL) == pytest.approx(2 * 50 / 140)
    session.answer_s["c1"] = 60.0
    assert warm.step_s(session, CELL) == warm.STEP_LONGEST_S
    session.schedule.recipe = recipe_of("throughput")
    assert warm.step_s(session, CELL) == 0.25, "bytes need no whole answers"


def test_a_server_that_never_answers_is_not_waited_for_for_long(loaded):
    _, lengths = loaded(session_of(warmup_s=2.0), lambda *_: nothing_yet())
    assert sum(lengths) < 90
    _, lengths = loaded(session_of(warmup_s=2.0), lambda *_: nothing_yet(errors=7))
    assert sum(lengths) <= 2.0


@pytest.mark.parametrize(
    ("tool", "rates", "is_told"),
    [
        ("jvm", [0.0, 38.0], True),
        ("jvm", [900.0, 1000.0, 1100.0], True),
        ("jvm", [10.0, 1000.0, 1005.0, 1001.0], False),
        ("nginx", [38.0], False),
        ("jvm", [], False),
    ],
)
def test_a_warm_up_that_did_not_settle_is_noted(tool, rates, is_told):
    """A JVM that reached 38 requests/s in its second of warm-up was measured without a note."""
    text = warm.note_of(session_of(tool, warmup_s=2.0), rates)
    assert text.startswith("the warm-up did not settle in 2 s") == is_told and bool(text) == is_told
