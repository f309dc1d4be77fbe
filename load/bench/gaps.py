"""Measures the time that a program which only reads the clock loses on a core (empty_loop.c).

No generator can be more punctual on that core: the hypervisor, interrupts, kernel
threads and other programs take time from both alike.
"""

import contextlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("empty_loop.c")


@dataclass(frozen=True)
class Gaps:
    """The gaps of one run, in nanoseconds."""

    length_ns: float
    gaps_ns: list

    def lost(self):
        """Share of the time that was lost."""
        return sum(self.gaps_ns) / self.length_ns

    def wait_ns(self, quantile):
        """How long a request at a random moment waits for the end of a gap, at a quantile."""
        low, high = 0.0, float(max(self.gaps_ns, default=0))
        for _ in range(50):
            middle = (low + high) / 2
            beyond = sum(gap - middle for gap in self.gaps_ns if gap > middle) / self.length_ns
            low, high = (middle, high) if beyond > 1 - quantile else (low, middle)
        return high

    def __str__(self):
        most = max(self.gaps_ns, default=0)
        return (f"{self.lost() * 100:.2f} %; {self.wait_ns(0.99) / 1e3:,.1f}, "
                f"{self.wait_ns(0.999) / 1e3:,.1f}, {most / 1e3:,.1f} us")


@contextlib.contextmanager
def empty_loop():
    """Compiles the loop; yields its path."""
    with tempfile.TemporaryDirectory(prefix="wirespeed-gaps-") as folder:
        program = Path(folder, "empty_loop")
        subprocess.run(["cc", "-O2", "-o", program, SOURCE], check=True)
        yield str(program)


def gaps_of(core, seconds, priority=(), rests=False):
    """The gaps of a core; `priority` is a command before the loop, such as `nice -n -20`."""
    with empty_loop() as program:
        told = subprocess.run(["taskset", "-c", str(core), *priority, program, str(seconds),
                               *(["rest"] if rests else [])],
                              check=True, capture_output=True, text=True).stdout
    return Gaps(seconds * 1e9, [int(line.split()[1]) for line in told.splitlines()])
