"""Runs command lines from standard input, one JSON object a line, and prints what each wrote.

The front door and the lab are read once; each command is a fork in a folder of its own, with a clean
environment. `./wirespeed` is the front door; `wirespeed-load` and `bypass` are the built programs.
"""

import importlib
import json
import os
import pkgutil
import re
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {"load", "bypass"}
OWN_VARIABLES = re.compile(r"EF_|WIRESPEED_|LD_PRELOAD$|UV_|COLUMNS$")


def front_door(programs):
    """The front door as a module, for which these programs are built once and not for each command."""
    door = types.ModuleType("front_door")
    door.__file__ = str(ROOT / "wirespeed")
    exec(compile((ROOT / "wirespeed").read_text(), door.__file__, "exec"), door.__dict__)
    door.need("python", *programs)
    real_need, real_become = door.need, door.become

    def need(*names):
        real_need(*(name for name in names if name not in ("python", *PROGRAMS)))

    def become(argv, **environment):
        if Path(argv[0]).name != "wirespeed":
            real_become(argv, **environment)
        os.environ.update(environment)
        lab([str(word) for word in argv])

    door.need, door.become = need, become
    return door


def lab(argv):
    from wirespeed.cli import main

    sys.argv = argv
    main()


def import_lab():
    """Imports every module of the lab before the forks, which would each take 0.4 s for it."""
    import wirespeed

    for module in pkgutil.walk_packages(wirespeed.__path__, "wirespeed."):
        if not module.name.startswith(("wirespeed.agent", "wirespeed.__main__")):
            importlib.import_module(module.name)


def run(door, command):
    """Becomes the command."""
    while "=" in command[0]:
        name, _, value = command[0].partition("=")
        os.environ[name] = value
        command = command[1:]
    if command[0] == "./wirespeed":
        sys.argv = command
        run_front_door(door, command[1:])
    else:
        os.execve(ROOT / "target" / "release" / command[0], command, os.environ)


def run_front_door(door, arguments):
    try:
        door.main(arguments)
    except door.BuildFailed as error:
        print(f"wirespeed: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def in_child(door, command, folder, output):
    """Never returns."""
    status = 1
    try:
        os.chdir(folder)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        run(door, command)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else bool(end.code)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def answer(door, asked, folder):
    folder.mkdir()
    for name, text in asked["files"].items():
        (folder / name).write_text(text)
    path = folder.with_suffix(".out")
    with path.open("wb") as output:
        child = os.fork()
        if not child:
            in_child(door, asked["command"], folder, output.fileno())
        _, status = os.waitpid(child, 0)
    left = sorted({one.name for one in folder.iterdir()} - {*asked["files"]}) + [
        one.name for one in folder.parent.glob("runs")]
    output = path.read_text() + "".join(f"(left behind: {name})\n" for name in left)
    return {"output": output, "status": os.waitstatus_to_exitcode(status)}


def main():
    top = Path(sys.argv[1])
    for name in [name for name in os.environ if OWN_VARIABLES.match(name)]:
        del os.environ[name]
    os.environ.update(WIRESPEED_COMMAND="./wirespeed", WIRESPEED_ROOT=str(ROOT), COLUMNS="100",
                      WIRESPEED_RUNS=str(top / "runs"), WIRESPEED_STATE=str(top / "state"),
                      WIRESPEED_LOCK=str(top / "lock"))
    all_asked = [json.loads(line) for line in sys.stdin]
    door = front_door(PROGRAMS & {word for asked in all_asked for word in asked["command"][:3]})
    import_lab()
    for number, asked in enumerate(all_asked):
        print(json.dumps(answer(door, asked, top / str(number))), flush=True)


if __name__ == "__main__":
    main()
