"""A channel to an agent, at its end."""

import ast
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from wirespeed.errors import HostError, LostHostError
from wirespeed.fleet import channel, host
from wirespeed.fleet.channel import KEEPS_A_LEASE, Channel, Transport
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import SILENCE_S, Host
from wirespeed.recipe.model import Site
from wirespeed.site.ssh import alive


def test_a_sign_of_life_that_meets_a_closed_channel_says_nothing(monkeypatch):
    """The thread that keeps the lease may be about to write when the channel closes."""
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    far = Transport("here", python=sys.executable, lease_s=0.05 * KEEPS_A_LEASE)
    opened = Channel(far, {"mark": "test-channel", "cgroups": False, "lab_pid": None})
    opened._closing.wait = lambda pause_s: time.sleep(pause_s)  # it is never notified of the end
    time.sleep(0.1)
    opened.close()
    opened.wait(60)
    time.sleep(0.15)
    assert not seen


def test_an_agent_of_another_protocol_is_refused(monkeypatch):
    monkeypatch.setattr(host, "PROTOCOL", host.PROTOCOL + 1)
    agent = Host(Transport("here", python=sys.executable), {"mark": "old", "cgroups": False})
    try:
        with pytest.raises(HostError, match=r"here: the agent speaks protocol \d+, not \d+"):
            agent.greet()
    finally:
        agent.close()


def test_a_python_that_is_too_old_is_named(monkeypatch):
    """It ended with a syntax error of one of the agent's own files."""
    later = channel.BOOTSTRAP.replace("(3, 9)", "(9, 9)")
    monkeypatch.setattr(channel, "BOOTSTRAP", later)
    # It may have ended before the first request is sent, or after.
    with pytest.raises(HostError, match=r"old: Python 3\.\d+ is too old for the agent"):
        Fleet([Transport("old", python=sys.executable)], "old", cgroups=False)


@pytest.mark.parametrize("name", channel.MODULES)
def test_the_agent_has_no_syntax_that_its_oldest_python_lacks(name):
    text = (Path(channel.__file__).parents[1] / "agent" / f"{name}.py").read_text()
    assert ast.parse(text, feature_version=channel.PYTHON_LEAST)


def test_words_of_a_program_that_goes_on_are_not_written_over(monkeypatch, tmp_path):
    """Reading them moved the offset that the program writes at."""
    monkeypatch.setattr(channel, "LAST_WORDS_S", 0.0)
    speaks = (
        "exec 3<&0; cat <&3 >/dev/null & echo first words >&2; echo said; "
        f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo more >&2; echo said; wait"
    )
    opened = Channel(Transport("far", ("sh", "-c", speaks)), {})
    try:
        for words in ("first words", "more"):
            assert os.read(opened.fd, 100) == b"said\n"
            assert opened.last_words() == words
            (tmp_path / "go").touch()
        assert os.pread(opened._complaints.fileno(), 100, 0) == b"first words\nmore\n"
    finally:
        opened.close()
        opened.wait(60)


def test_words_between_the_answers_of_an_agent_are_a_reason_in_one_line():
    """A job in the background of ~/.bashrc: the traceback of a parser."""
    for words in ("12 new messages", "12"):
        speaks = f"printf '%s\\n' '{channel.MARKER.decode()}' '{words}'; cat >/dev/null"
        opened = Channel(Transport("far", ("sh", "-c", speaks)), {})
        try:
            with pytest.raises(HostError, match=rf"^far: something writes .* may: {words}$"):
                while True:
                    opened.receive()
        finally:
            opened.close()
            opened.wait(60)


def test_a_host_keeps_its_lease_through_a_pause_of_seconds():
    """Whatever a site allows: neither ssh nor the lab give a host up before its lease is over."""
    site = Site(kind="ssh", lease="20s")
    assert alive(site.lease)[-1] == "ServerAliveCountMax=10"
    assert alive(Site(kind="ssh").lease)[-1] == "ServerAliveCountMax=5"
    far = Transport("far", python=sys.executable, lease_s=20.0)
    agent = Host(far, {"mark": "pause", "cgroups": False})
    try:
        agent.greet()
        agent.heard -= SILENCE_S + 5
        agent.check_heard()
        agent.heard -= 10
        with pytest.raises(LostHostError, match="has sent nothing for"):
            agent.check_heard()
    finally:
        agent.close()


def test_a_silent_host_is_noticed_while_others_speak():
    """Other hosts' messages kept arriving, and the lab waited for a generator behind a cut link."""
    transports = [
        Transport(name, python=sys.executable, lease_s=60.0) for name in ("speaks", "silent")
    ]
    fleet = Fleet(transports, "test-silence", cgroups=False)
    try:
        silent = fleet["silent"]
        os.kill(silent.info["pid"], signal.SIGSTOP)
        silent.heard -= 60 + 1
        with pytest.raises(HostError, match="silent has sent nothing for 6"):
            fleet["speaks"].ask("clock")
        # reported once: machines that live can be put back
        assert fleet["speaks"].ask("clock")["now"] > 0
        begun = time.monotonic()
        with pytest.raises(HostError, match="silent has sent nothing for 6"):
            silent.ask("clock")
        fleet.place("load", silent)
        with pytest.raises(HostError, match="silent has sent nothing for 6"):
            fleet.wait_exit(["load"], 60.0)
        assert time.monotonic() - begun < 30
    finally:
        os.kill(silent.info["pid"], signal.SIGCONT)
        fleet.close()


def test_an_agent_that_ended_is_reported_once():
    """Its closed pipe stayed readable, so every request to the other hosts failed."""
    fleet = Fleet(
        [Transport(name, python=sys.executable) for name in ("stays", "ends")], "e", False
    )
    try:
        os.kill(fleet["ends"].info["pid"], signal.SIGKILL)
        with pytest.raises(HostError, match="ends: the agent has ended"):
            while not fleet.poll(60.0):
                pass
        assert fleet["stays"].ask("clock")["now"] > 0
        with pytest.raises(HostError, match="ends: the agent has ended"):
            fleet["ends"].ask("clock")
    finally:
        fleet.close()


def test_a_log_in_may_take_longer_than_a_silence(monkeypatch):
    """ssh with slow DNS, or a queue of Slurm: only a host that has logged in can be silent."""
    monkeypatch.setattr(host, "SILENCE_S", 0.2)
    slow = ("sh", "-c", 'echo welcome; sleep 1; exec "$@"', "sh")
    far = Transport("slow", slow, sys.executable, lease_s=60.0)
    agent = Host(far, {"mark": "slow", "cgroups": False, "lab_pid": None})
    try:
        agent.greet()
        assert agent.info["pid"] > 0
    finally:
        agent.close()


def test_a_part_of_a_message_is_a_sign_of_life(monkeypatch):
    agent = Host(Transport("here", python=sys.executable), {"mark": "part", "cgroups": False})
    try:
        agent.greet()
        agent.heard = 0.0
        monkeypatch.setattr(agent.channel, "receive", list)  # the end of its line is on the way
        agent.take_in()
        assert agent.heard > 0
    finally:
        agent.close()


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "csh", "tcsh", "zsh", "fish", "ksh"])
def test_an_agent_starts_below_any_login_shell(shell):
    """csh ends a quoted word at the end of its line, and the agent never came up."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    far = Transport("there", (shell, "-c"), sys.executable, is_quoted=True)
    agent = Host(far, {"mark": "test-shell", "cgroups": False})
    try:
        agent.greet()
        assert agent.ask("clock")["now"] > 0
    finally:
        agent.close()
    (command,) = far.argv()[2:]
    assert "\n" not in command and "!" not in command
