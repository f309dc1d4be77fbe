"""Ctrl-C and the signals that end a run: the first is raised, none interrupts the clean-up."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


class Terminated(KeyboardInterrupt):
    """TERM, and a terminal that closes, end a run like Ctrl-C, with an exit code of their own."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_open: list[list[int]] = []  # the signals that have come, of each block below


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """The first INT, TERM or HUP raises; those after it are ignored, since the run is ending and
    would leave what it has not removed yet. A failure after it is its consequence, and what it
    raises is raised again. HUP stays ignored under nohup."""
    came: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        is_first = not came  # asked first: another signal may interrupt this function
        came.append(number)
        if is_first:
            raise _interrupt(number)

    _open.append(came)
    try:
        with _handled_by(stop):
            yield
    except Exception as error:
        if came:
            raise _interrupt(came[0]) from error
        raise
    finally:
        _open.pop()  # of nested blocks the inner one ends first


def check() -> None:
    """Raises what the first signal raised, where that was lost: Python drops it inside of a
    finalizer, and a failure of the tidying up takes its place. To be called before work goes on."""
    for came in _open:
        if came:
            raise _interrupt(came[0])


def have_come() -> bool:
    """Whether a signal ends the work, whatever has failed since."""
    return any(_open)


def _interrupt(number: int) -> KeyboardInterrupt:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


@contextmanager
def held_back() -> Iterator[None]:
    """A signal that comes during this block counts after it. For blocks that tidy up after another
    failure, and that end in time."""
    came: list[int] = []
    try:
        with _handled_by(lambda number, _: came.append(number)):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
