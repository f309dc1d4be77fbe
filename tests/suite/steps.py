"""The steps of `./test`: their commands, how to read what they did, what to quote of a failure."""

import glob
import re
import sys
from pathlib import Path

import rust
from suite import results

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "test"
PYTHON = ROOT / "build" / "venv" / "bin" / "python"

#: Lines printed of each failed step, so that a log cut to its end still names what failed.
EXCERPT_LINES_MAX = 100


CLIPPY = "cargo clippy --workspace --all-targets --locked -- -D warnings"


class Step:
    """The commands of one test runner, which run in parallel.

    `seconds` is what the step usually takes on 2 cores. `read` turns the output of all commands and
    the time of their start into Results. `failure` matches what the output says about a failure.
    `ahead` compiles for the step at low priority; errors of that compilation show up in the step
    itself. It begins with the run where `after` is "start", else once what the tests need is there
    and the step named `after` has ended."""

    def __init__(self, name, seconds, commands, read, failure=r"(?!)", minutes_max=45, ahead=None,
                 after=None):
        self.name, self.seconds, self.commands, self.read = name, seconds, commands, read
        self.failure, self.minutes_max = re.compile(failure, re.M | re.S), minutes_max
        self.ahead, self.after = ahead, after

    def excerpt(self, text):
        """The failures that the output describes, or its end when it describes none."""
        found = "\n".join(match.group() for match in self.failure.finditer(text))
        return "\n".join((found or text).splitlines()[-EXCERPT_LINES_MAX:])


def checks(name, seconds, *commands, **options):
    """Programs that say yes or no by their exit code; each counts as one test."""
    return Step(name, seconds, [command.split() for command in commands],
                lambda _, __: results.Results(passed=len(commands)), **options)


def junit(pattern):
    def read(_, started):
        paths = glob.glob(str(ROOT / pattern), recursive=True)
        return results.junit(results.newer(paths, started))

    return read


#: Starts a command that shares neither /dev/shm nor mounts, and by whose IPC namespace its processes are known.
APART = ["unshare", "--ipc", "--mount", "sh", "-c", 'mount -t tmpfs shm /dev/shm && exec "$@"', "sh"]


def pytest(name, seconds, *parts, before=()):
    """Each part holds the arguments of one process of pytest, which `before` starts."""
    commands = [[*before, str(PYTHON), "-m", "pytest", "-q", "-o", f"cache_dir={OUT}/{name}.{number}.cache",
                 f"--junitxml={OUT}/{name}.{number}.xml", *part.split()]
                for number, part in enumerate(parts, 1)]
    return Step(name, seconds, commands, junit(f"build/test/{name}.*.xml"),
                r"^=+ (?:FAILURES|ERRORS) =+$.*?(?=^part \d+ ended|\Z)")


def steps():
    # Stories without duets, of two parts.
    failing, stacked = ([f"lab/tests/stories/test_{name}.py" for name in names]
                        for names in (("failures", "counters", "pipes", "profile"), ("stacks", "tuned")))
    # Unit tests of figures and reports.
    pure = ["lab/tests/analysis", "lab/tests/report", "lab/tests/results"]
    # Recipes have fixed ports: all that run on this host itself, and not in namespaces, are in one part.
    local = [f"tests/system/test_{name}.py" for name in ("action", "guides", "jobs", "measure", "service", "stacks")]
    # They have a higher priority than other runs, whose trials on these cores they make invalid: a test
    # that asks for valid ones comes after them.
    local.append("tests/system/test_two_hosts.py")
    return [
        # Layout, habits and types; the words of documents and messages are a test of `architecture`.
        checks("lint", 90, "cargo fmt --all --check",
               f"{PYTHON} -m ruff check -q --output-format concise",
               f"{PYTHON} -m mypy --cache-dir {OUT}/mypy.lab --config-file lab/pyproject.toml lab/src",
               f"{PYTHON} -m mypy --cache-dir {OUT}/mypy.rest --config-file mypy.ini",
               CLIPPY,
               # Compiled while packages are installed, which waits for network and disk.
               ahead=CLIPPY.split(), after="start"),
        # Compiled while clippy runs: most of the time one thread optimises or links.
        checks("programs", 120, "./wirespeed build", ahead=["./wirespeed", "build"]),
        pytest("architecture", 5, "-c tests/pytest.ini tests/architecture"),
        # Tests that start programs and wait for them, in parts of about equal length. Duets refuse to
        # run next to a program with real-time priority, which their own tests have: one part.
        pytest("lab", 340, " ".join(failing),
               " ".join(["lab/tests/agent/test_duet.py lab/tests/stories",
                         *(f"--ignore={path}" for path in [*failing, *stacked])]),
               " ".join(["lab/tests/site", *stacked]),
               " ".join(pure),
               " ".join(["lab/tests --ignore=lab/tests/stories --ignore=lab/tests/site"
                         " --ignore=lab/tests/agent/test_duet.py", *(f"--ignore={path}" for path in pure)])),
        Step("java", 260, [["mvn", "-B", "-fae", "-T", "3", "-f", "servers/pom.xml", "verify"]],
             junit("servers/*/target/surefire-reports/*.xml"), r"^\[ERROR\][^\n]*"),
        Step("rust", 480, [[sys.executable, "tests/rust.py"]],
             lambda text, _: results.cargo(text),
             r"^programs that failed:$.*\Z|^error(?:\[[^\n]*|: [0-9]+ targets?).*?(?=\n\n|\Z)",
             ahead=[*rust.CARGO, *rust.PROGRAMS, "--no-run", "-q"], after="programs"),
        # Counted by valgrind, so that nothing else that runs changes the result.
        checks("instructions", 25, f"{sys.executable} tests/instructions.py"),
        # What a run leaves is looked for in all of /dev/shm, mounts and processes: each part has those of its own.
        pytest("system", 210,
               " ".join(["-c tests/pytest.ini tests/system", *(f"--ignore={path}" for path in local)]),
               " ".join(["-c tests/pytest.ini", *local]), before=APART),
    ]
