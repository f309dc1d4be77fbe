"""Part of the agent: settings without files: services, and interrupt coalescing of cards.

A switch is [kind, target, key]; it is read as a text and set to one. Standard library of Python
3.9 only: see main.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from wirespeed.agent.facts import output

# As ethtool prints them as text where its JSON does not know the question.
ADAPTIVE = re.compile(r"^Adaptive RX: (\w+)\s+TX: (\w+)", re.M)


def name_of(switch: Sequence[str]) -> str:
    kind, target, key = switch
    return f"service {target}" if kind == "service" else f"coalescing {key} of {target}"


def now(switch: Sequence[str]) -> str | None:
    """Its value; None where this host has no such thing."""
    kind, target, key = switch
    if kind == "service":
        code, text = output(["systemctl", "is-active", target])
        return text.strip() if code != 127 and text.strip() in ("active", "inactive") else None
    return coalescing(target).get(key)


def turn(switch: Sequence[str], value: str) -> str:
    """Sets it; what was wrong, or ""."""
    kind, target, key = switch
    if kind == "service":
        command = ["systemctl", "start" if value == "active" else "stop", target]
    else:
        command = ["ethtool", "-C", target, key, value]
    code, text = output(command)
    lines = text.strip().splitlines()
    return "" if code == 0 else (lines[-1] if lines else f"{command[0]} failed")


def coalescing(interface: str) -> dict[str, str]:
    """{"rx-usecs": "3", "adaptive-rx": "off", …}"""
    code, text = output(["ethtool", "--json", "--show-coalesce", interface])
    try:
        rows = json.loads(text)[0] if code == 0 else None
    except (ValueError, IndexError):
        rows = None
    if rows is not None:
        return {key: as_word(value) for key, value in rows.items() if key != "ifname"}
    code, text = output(["ethtool", "--show-coalesce", interface])
    if code != 0:
        return {}
    settings = dict(re.findall(r"^([\w-]+):\s+(\d+|on|off)\s*$", text, re.M))
    adaptive = ADAPTIVE.search(text)
    if adaptive:
        settings["adaptive-rx"], settings["adaptive-tx"] = adaptive.groups()
    return {key: value for key, value in settings.items() if value != "n/a"}


def as_word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
