"""The stack under a process: the kernel, Onload where installed, or this repository's bypass."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from wirespeed.driver.base import Command
from wirespeed.recipe.model import PlacedStack, Stack


@dataclass(frozen=True)
class Provider:
    """The provider of a stack here, or why there is none."""

    name: str  # kernel, onload or bypass
    problem: str = ""


def provider(root: Path, stack: Stack | None) -> Provider:
    if stack is None or stack.provider == "none":
        return Provider("kernel")
    reported = stack.has_onload if isinstance(stack, PlacedStack) else None
    has_onload = _has_onload() if reported is None else reported
    if stack.provider == "onload" or (stack.provider == "auto" and has_onload):
        return Provider("onload", "" if has_onload else "onload is not installed")
    return Provider("bypass", _missing(root, stack))


def _has_onload() -> bool:
    """Whether the command `onload` is Onload's own, not bypass under that name."""
    program = shutil.which("onload")
    return program is not None and Path(program).resolve().name != "bypass"


def is_polling(root: Path, stack: Stack | None) -> bool:
    """Whether a program on this stack may fill its core with looks for work that is not there."""
    return provider(root, stack).name != "kernel"


def can_build(root: Path) -> bool:
    """Whether the front door can make bypass from this checkout."""
    return (root / "bypass" / "preload" / "Cargo.toml").exists()


def is_built(root: Path) -> bool:
    return program(root).exists() and library(root).exists()


def program(root: Path) -> Path:
    """The command `bypass`."""
    return root / "target" / "release" / "bypass"


def library(root: Path) -> Path:
    """The library that bypass adds to a program; it looks for it in its own folder."""
    return root / "target" / "release" / "libbypass_preload.so"


def profiles(root: Path) -> list[Path]:
    """All profiles, because they import each other; bypass looks for them above its folder."""
    return sorted((root / "profiles").glob("*.opf"))


def profile(root: Path, stack: Stack) -> Path:
    return root / "profiles" / f"{stack.profile}.opf"


def _missing(root: Path, stack: Stack) -> str:
    """Problems that no build fixes."""
    if not is_built(root) and not can_build(root):
        return "bypass is not built"
    if stack.profile and not profile(root, stack).exists():
        return f"profiles/{stack.profile}.opf not found"
    return ""


def wrap(root: Path, stack: Stack | None, command: Command) -> Command:
    """The command as the stack's provider starts it."""
    carrier = provider(root, stack)
    if stack is None or carrier.name == "kernel":
        return command
    along = command.along
    if carrier.name == "onload":
        prefix = ["onload", *([f"--profile={stack.profile}"] if stack.profile else [])]
    else:
        along = (*along, library(root), *profiles(root))
        prefix = [str(program(root)), "run"]
        prefix += [f"--profile={stack.profile}"] if stack.profile else []
        interface = stack.interface if isinstance(stack, PlacedStack) else ""
        prefix += [f"--interface={interface}"] if interface else []
        prefix += ["--"]
    return Command(prefix + command.argv, {**command.env, **stack.env}, along)
