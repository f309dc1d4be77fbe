"""Cores: every role has some, and no core has two roles while there are enough."""

from hypothesis import given
from hypothesis import strategies as st

from wirespeed import topology
from wirespeed.topology import Seat


@given(st.integers(1, 128), st.booleans())
def test_every_role_has_cores_and_server_and_load_share_none(count, has_origin):
    roles = topology.roles_of(range(count), has_origin)
    assert all(roles[role] for role in topology.ROLES)
    if count > 1:
        assert not set(roles["server"]) & set(roles["load"])
    if count >= 4:
        assert all(0 not in cores for cores in roles.values())


def test_two_cores_are_server_and_load():
    assert topology.roles_of([0, 1], True) == {"server": [0], "load": [1], "origin": [1]}


@given(st.integers(1, 32), st.integers(1, 64), st.integers(1, 4), st.booleans())
def test_a_deal_fits_shares_or_says_why_not(cores, count, per, share):
    dealt = topology.deal([Seat("a", core) for core in range(cores)], count, per, share)
    if count * per <= cores:
        used = [seat for own in dealt.seats for seat in own]
        assert len(set(used)) == count * per and not dealt.shared
    elif share:
        assert dealt.shared and len(dealt.seats) == count and all(dealt.seats)
    else:
        assert dealt.problem and not dealt.seats


def test_processes_take_turns_over_hosts_and_stay_on_one():
    seats = [Seat(host, core) for host in ("a", "b", "c") for core in (0, 1)]
    dealt = topology.deal(seats, 4, 1, share=False)
    assert [own[0].host for own in dealt.seats] == ["a", "b", "c", "a"]
    wide = topology.deal(seats, 3, 2, share=False)
    assert all(len({seat.host for seat in own}) == 1 for own in wide.seats)
    assert topology.deal(seats, 4, 2, share=False).problem


def test_one_thread_of_each_physical_core_and_nodes_in_turn_or_the_first():
    seats = [Seat("a", core) for core in range(4)]
    threads, nodes = {"a": {0: 0, 1: 1, 2: 0, 3: 1}}, {"a": {0: 0, 1: 0, 2: 1, 3: 1}}
    assert [seat.core for seat in topology.one_a_core(seats, threads)] == [0, 1]
    assert [seat.core for seat in topology.by_node(seats, nodes, "spread")] == [0, 2, 1, 3]
    assert [seat.core for seat in topology.by_node(seats, nodes, "near")] == [0, 1]
    assert topology.one_a_core(seats, {}) == topology.by_node(seats, {}, "near") == seats
