"""A channel to an agent, at its end."""

import sys
import threading
import time

import pytest

from wirespeed.errors import HostError
from wirespeed.fleet import host
from wirespeed.fleet.channel import KEEPS_A_LEASE, Channel, Far
from wirespeed.fleet.host import Host


def test_a_sign_of_life_that_meets_a_closed_channel_says_nothing(monkeypatch):
    """The thread that keeps the lease may be about to write when the channel closes."""
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    far = Far("here", python=sys.executable, lease_s=0.05 * KEEPS_A_LEASE)
    channel = Channel(far, {"mark": "test-channel", "cgroups": False, "lab_pid": None})
    channel._closing.wait = lambda pause_s: time.sleep(pause_s)  # it never hears of the end
    time.sleep(0.1)
    channel.close()
    channel.wait(15)
    time.sleep(0.15)
    assert not seen


def test_an_agent_of_another_protocol_is_refused(monkeypatch):
    monkeypatch.setattr(host, "PROTOCOL", host.PROTOCOL + 1)
    agent = Host(Far("here", python=sys.executable), {"mark": "old", "cgroups": False})
    try:
        with pytest.raises(HostError, match=r"here: the agent speaks protocol \d+, not \d+"):
            agent.greet()
    finally:
        agent.close()
