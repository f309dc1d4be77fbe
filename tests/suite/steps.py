"""The steps of `./test`: their commands, how to read what they did, what to quote of a failure."""

import glob
import re
import sys
from pathlib import Path

from suite import results

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "test"
PYTHON = ROOT / "build" / "venv" / "bin" / "python"

#: Lines printed of each failed step, so that a log cut to its end still names what failed.
EXCERPT_LINES_MAX = 100


class Step:
    """The commands of one test runner, which run in parallel.

    `seconds` is what the step usually takes on 2 cores. `read` turns the output of all commands and
    the time of their start into Results. `failure` matches what the output says about a failure.
    `ahead` compiles for the step at low priority once the programs are built; errors of that
    compilation show up in the step itself."""

    def __init__(self, name, seconds, commands, read, failure=r"(?!)", minutes_max=45, ahead=None):
        self.name, self.seconds, self.commands, self.read = name, seconds, commands, read
        self.failure, self.minutes_max = re.compile(failure, re.M | re.S), minutes_max
        self.ahead = ahead

    def excerpt(self, text):
        """The failures that the output describes, or its end when it describes none."""
        found = "\n".join(match.group() for match in self.failure.finditer(text))
        return "\n".join((found or text).splitlines()[-EXCERPT_LINES_MAX:])


def checks(name, seconds, *commands):
    """Programs that say yes or no by their exit code; each counts as one test."""
    return Step(name, seconds, [command.split() for command in commands],
                lambda _, __: results.Results(passed=len(commands)))


def junit(pattern):
    def read(_, started):
        paths = glob.glob(str(ROOT / pattern), recursive=True)
        return results.junit(results.newer(paths, started))

    return read


def pytest(name, seconds, *parts):
    """Each part holds the arguments of one process of pytest."""
    commands = [[str(PYTHON), "-m", "pytest", "-q", "-o", f"cache_dir={OUT}/{name}.{number}.cache",
                 f"--junitxml={OUT}/{name}.{number}.xml", *part.split()]
                for number, part in enumerate(parts, 1)]
    return Step(name, seconds, commands, junit(f"build/test/{name}.*.xml"),
                r"^=+ (?:FAILURES|ERRORS) =+$.*?(?=^part \d+ ended|\Z)")


def steps():
    cargo = ["cargo", "test", "--workspace", "--locked"]
    return [
        # Layout, habits and types; the words of documents and messages are a test of `architecture`.
        checks("lint", 90, "cargo fmt --all --check",
               f"{PYTHON} -m ruff check -q --output-format concise",
               f"{PYTHON} -m mypy --cache-dir {OUT}/mypy.lab --config-file lab/pyproject.toml lab/src",
               f"{PYTHON} -m mypy --cache-dir {OUT}/mypy.rest --config-file mypy.ini",
               "cargo clippy --workspace --all-targets --locked -- -D warnings"),
        checks("programs", 170, "./wirespeed build"),
        pytest("architecture", 5, "-c tests/pytest.ini tests/architecture"),
        # Tests that start programs and wait for them, in parts of about equal length. Duets refuse to
        # run next to a program with real-time priority, which their own tests have: one part.
        pytest("lab", 255, "lab/tests/stories/test_failures.py",
               "lab/tests/agent/test_duet.py lab/tests/stories"
               " --ignore=lab/tests/stories/test_failures.py",
               "lab/tests/site",
               "lab/tests --ignore=lab/tests/stories --ignore=lab/tests/site"
               " --ignore=lab/tests/agent/test_duet.py"),
        Step("java", 320, [["mvn", "-B", "-fae", "-T", "2", "-f", "servers/pom.xml", "verify"]],
             junit("servers/*/target/surefire-reports/*.xml"), r"^\[ERROR\][^\n]*"),
        Step("rust", 280, [[sys.executable, "tests/rust.py"]],
             lambda text, _: results.cargo(text),
             r"^programs that failed:$.*\Z|^error(?:\[[^\n]*|: [0-9]+ targets?).*?(?=\n\n|\Z)",
             ahead=[*cargo, "--no-run", "-q"]),
        pytest("system", 215, "-c tests/pytest.ini tests/system"),
    ]
