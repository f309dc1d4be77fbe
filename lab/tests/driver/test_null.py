"""The null server in a server's place: where its result is useful, and how it is started."""

from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.driver import null
from wirespeed.recipe.model import Stack
from wirespeed.recipe.resolve import Instance
from wirespeed.topology import Seat

ROOT = Path("/checkout")
FAST = Stack(provider="bypass")
SERVER = Instance(
    "app", 0, "server", "nginx", ["nginx"], [Seat("here", 0, "10.0.0.1")], 8080, "fast",
    {"A": "b"}, {}, None, {}, {"nginx.conf": "x"}, under=FAST, prepare=("true",),
)  # fmt: skip
LOAD = Instance(
    "gen", 0, "load", "load", ["-c", "50", "http://10.0.0.1:8080/1"], [Seat("here", 1)], None,
    "fast", {}, {}, None, {}, {}, under=FAST,
)  # fmt: skip


def key(server=SERVER, load=LOAD):
    return null.key_of(ROOT, [server, load])


def test_it_stands_where_the_server_would_with_nothing_of_its_own():
    made = null.in_place_of(ROOT, SERVER)
    assert made.argv == ["/checkout/target/release/wirespeed-load", "sink", "10.0.0.1:8080"]
    assert (made.label, made.seats, made.under) == (SERVER.label, SERVER.seats, FAST)
    assert (made.env, made.template, made.prepare, made.tool) == ({}, {}, (), "command")
    assert made.ready.url == "tcp://10.0.0.1:8080"


def test_cells_that_request_other_files_share_its_result():
    assert key() and key() == key(load=replace(LOAD, argv=[*LOAD.argv[:2], "http://x:1/big"]))
    assert key() != key(load=replace(LOAD, argv=["-c", "51", LOAD.argv[-1]]))
    assert key() != key(server=replace(SERVER, under=Stack(provider="bypass", profile="p")))


@pytest.mark.parametrize(
    ("of", "change"),
    [
        (LOAD, {"under": None}),  # its core shows its load
        (LOAD, {"tool": "wrk"}),
        (LOAD, {"argv": ["-R", "5", *LOAD.argv]}),
        (LOAD, {"argv": ["-s", "a.lua", *LOAD.argv]}),
        (LOAD, {"argv": ["-sa.lua", *LOAD.argv]}),
        (LOAD, {"argv": ["--replay", "access.log", *LOAD.argv]}),
        (LOAD, {"argv": ["-c", "1", LOAD.argv[-1]]}),
        (SERVER, {"port": None}),
    ],
)
def test_it_is_not_run_where_its_result_is_useless(of, change):
    changed = {of.role: replace(of, **change)}
    assert key(**changed) == ""


def test_one_connection_with_several_requests_in_flight_counts_as_many():
    assert key(load=replace(LOAD, argv=["-c", "1", "--depth", "8", LOAD.argv[-1]]))


def test_a_ceiling_has_no_server_to_stand_for():
    assert null.key_of(ROOT, [LOAD]) == ""
