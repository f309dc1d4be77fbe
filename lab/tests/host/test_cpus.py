"""Cores: every role has some, nobody's core is another's while there are enough."""

from hypothesis import given
from hypothesis import strategies as st

from wirespeed.host import cpus


@given(st.integers(1, 128), st.booleans())
def test_every_role_has_cores_and_server_and_load_share_none(count, has_origin):
    roles = cpus.roles_of(range(count), has_origin)
    assert all(roles[role] for role in cpus.ROLES)
    if count > 1:
        assert not set(roles["server"]) & set(roles["load"])
    if count >= 4:
        assert all(0 not in cores for cores in roles.values())


def test_two_cores_are_server_and_load():
    assert cpus.roles_of([0, 1], True) == {"server": [0], "load": [1], "origin": [1]}


@given(st.integers(1, 32), st.integers(1, 64), st.integers(1, 4), st.booleans())
def test_a_deal_fits_shares_or_says_why_not(cores, count, per, share):
    fit = cpus.deal(range(cores), count, per, share)
    if count * per <= cores:
        used = [core for own in fit.cores for core in own]
        assert len(set(used)) == count * per and not fit.shared
    elif share:
        assert fit.shared and len(fit.cores) == count and all(fit.cores)
    else:
        assert fit.problem and not fit.cores
