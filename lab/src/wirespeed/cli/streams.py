"""Standard output and error whose reader may close them: the measurement goes on all the same."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO


class Stream(io.FileIO):
    """A standard stream. Once writing has failed, nothing more is written, without an error."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)
        self.problem: OSError | None = None

    def write(self, data: Any, /) -> int:
        if self.problem is None:
            try:
                return super().write(data)
            except OSError as error:
                self.problem = error
        return len(memoryview(data).cast("B"))


def guard() -> None:
    """Puts such streams in place of both, so that `wirespeed run … | head` measures to its end.
    A closed standard input is empty, and no file or socket gets its number."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = _guarded(sys.stdout, sys.__stdout__, 1)
    sys.stderr = _guarded(sys.stderr, sys.__stderr__, 2)


def _guarded(stream: TextIO | None, original: TextIO | None, number: int) -> TextIO:
    """A Python caller of the lab may have set a stream without a descriptor."""
    if stream is None:  # closed by whoever called: `>&-`
        return open(os.devnull, "w", encoding="utf-8")
    if stream is not original:
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(Stream(number)),
        encoding=stream.encoding,
        errors=_shown(stream),
        line_buffering=number == 2 or stream.isatty(),
    )


def _shown(stream: TextIO) -> str | None:
    """A terminal or a log that knows no × gets a question mark; tables must not end for that."""
    return "replace" if stream.errors == "strict" else stream.errors


def problem() -> OSError | None:
    """The error of standard output; a reader that has gone is a BrokenPipeError."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.problem if isinstance(raw, Stream) else None


def last_words() -> str:
    """Why not all of the output arrived, for standard error; nothing where a reader had enough."""
    error = problem()
    if error is None or isinstance(error, BrokenPipeError):
        return ""
    return f"standard output could not be written: {error.strerror}"
