"""The decisions of `--tune`: which cores are cleared, and what is printed."""

from types import SimpleNamespace

import pytest

from wirespeed.recipe.model import Recipe
from wirespeed.recipe.sweep import SweepPoint
from wirespeed.runner import tune
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.tune import Wanted
from wirespeed.topology import Seat

PROCESSES = [
    {"name": "http", "role": "server", "argv": ["x"]},
    {"name": "gen", "role": "load", "argv": ["x"]},
]


def recipe(**more):
    return Recipe.model_validate({"wirespeed": 2, "name": "r", "process": PROCESSES, **more})


def cell(server, load):
    seats = {"http-0": server, "gen-0": load}
    return PlannedCell(
        SweepPoint("c", {}),
        seats={k: [Seat("here", core) for core in own] for k, own in seats.items()},
    )


@pytest.mark.parametrize(
    ("server", "load", "cores", "clear", "to"),
    [
        ([1], [2, 3], range(4), [1, 2, 3], [0]),
        ([0], [1], range(2), [0], [1]),  # none to spare: the generator's
        ([0], [0], range(2), [0], [1]),
        ([0, 1], [0, 1], range(2), [], []),  # pairs: everybody measures everywhere
        ([0], [0], range(1), [], []),
    ],
)
def test_measured_cores_are_emptied_onto_others(server, load, cores, clear, to):
    assert tune.emptied([cell(server, load)], recipe(), cores) == (clear, to)


def test_the_cells_of_a_run_are_emptied_together():
    cells = [cell([0], [2]), cell([0, 1], [2])]
    assert tune.emptied(cells, recipe(), range(4)) == ([0, 1, 2], [3])


def test_a_value_for_each_role_is_the_largest_on_one_machine():
    asked = {"vm.nr_hugepages": {"server": 10, "load": 2}, "net.core.somaxconn": 5000}
    schedule = SimpleNamespace(cells=[], recipe=recipe(tune={"sysctl": asked}))
    own = tune.wanted(schedule, range(2), roles=["load"])
    assert own.sysctl == {"vm.nr_hugepages": 2, "net.core.somaxconn": 5000}
    want = tune.wanted(schedule, range(2))
    assert want.sysctl == {"vm.nr_hugepages": 10, "net.core.somaxconn": 5000}


def test_changes_made_and_not_made_are_reported():
    told = {
        "sysctl": [["net.core.somaxconn", "4096", "5000"]],
        "switches": [["service irqbalance", "active", "inactive"]],
        "threads": 12,
        "irqs": 3,
        "pinned": ["a", "b", "a"],
        "refused": [["net.x", "there is none here"]],
    }
    assert tune.sentences(Wanted({}, {}, [0], [1]), told) == [
        "net.core.somaxconn was 4096, is 5000",
        "service irqbalance was active, is inactive",
        "12 threads and 3 interrupts of other programs left core 0 for core 1",
        "left where their owners pinned them: a, b",
        "net.x is not set: there is none here",
    ]


def test_without_permission_one_line_says_so():
    told = {"sysctl": [], "switches": [], "threads": 0, "irqs": 0, "pinned": [], "refused": []}
    (line,) = tune.sentences(Wanted({}, {}, [0], [1]), told)
    assert "needs root" in line


def test_a_plan_shows_settings_of_the_method_and_those_left_to_the_user():
    asked = {
        "sysctl": {"net.core.somaxconn": 5000},
        "services": {"stop": ["irqbalance"]},
        "coalesce": {"rx-usecs": 0},
        "expect": {"smt": "off"},
    }
    schedule = SimpleNamespace(cells=[cell([0], [1])], recipe=recipe(tune=asked))
    first, second = tune.foreseen(schedule, is_asked_for=False)
    assert first.startswith("the recipe asks for (set with --tune): net.core.somaxconn = 5000 (is ")
    assert first.endswith("service irqbalance stopped, coalescing rx-usecs 0")
    assert second.startswith("the method also had (firmware") and second.endswith(": smt off")
    assert any("for the time of the run" in line for line in tune.foreseen(schedule, True))


def test_each_machine_keeps_the_value_of_its_own_role():
    """`tune apply` used the largest role's value everywhere: huge pages for load hosts too."""
    asked = {"vm.nr_hugepages": {"server": 10, "load": 2}}
    hosts = {"server": ["one"], "load": ["two"], "origin": []}
    topology = SimpleNamespace(hosts=hosts.__getitem__, links={})
    place = SimpleNamespace(topology=topology)
    schedule = SimpleNamespace(cells=[], recipe=recipe(tune={"sysctl": asked}), place=place)
    orders = {}

    def machine(name):
        def ask(_op, **order):
            orders[name] = order["sysctl"]
            return {"sysctl": [], "switches": [], "threads": 0, "irqs": 0, "pinned": [],
                    "refused": []}  # fmt: skip

        far = SimpleNamespace(has_own_network=False)
        return SimpleNamespace(name=name, info={"cores": [0, 1]}, ask=ask, far=far)

    machines = {name: machine(name) for name in ("one", "two")}

    class Fleet(dict):
        @property
        def machines(self):
            return list(self.values())

        def on_machine_of(self, one):
            return [one]

    tune.stand(Fleet(machines), schedule)
    assert orders == {"one": {"vm.nr_hugepages": 10}, "two": {"vm.nr_hugepages": 2}}
