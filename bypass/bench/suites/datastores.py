"""redis and memcached under their Python clients' own tests, on the kernel and accelerated.

The clients' source packages carry the tests; server and client are both accelerated.
"""

import signal
import socket
import subprocess
import tarfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

MINUTES_MAX = 8


def redis(runner):
    """redis-py's tests of commands, connections, pipelines and subscriptions."""
    names = ["tests/test_commands.py", "tests/test_pipeline.py", "tests/test_pubsub.py",
             "tests/test_connection_pool.py", "tests/test_lock.py", "tests/test_encoding.py"]
    server = ["redis-server", "--port", "{port}", "--save", "", "--daemonize", "no",
              "--enable-debug-command", "yes"]
    return _compare(runner, "redis", server, names,
                    ["--redis-url=redis://127.0.0.1:{port}/9", "-m", "not onlycluster and not redismod"])


def memcached(runner):
    """pymemcache's integration tests."""
    server = ["memcached", "-l", "127.0.0.1", "-p", "{port}", "-u", "nobody", "-U", "0"]
    return _compare(runner, "pymemcache", server, ["pymemcache/test/test_integration.py",
                                                      "pymemcache/test/test_utils.py"],
                    ["--server=127.0.0.1", "--port={port}"])


def _compare(runner, package, server, tests, options):
    source = _source(runner, package)
    kernel = _run(runner, source, server, tests, options, False)
    ours = _run(runner, source, server, tests, options, True)
    good = {name for name, outcome in kernel.items() if outcome == "passed"}
    different = [{"test": name, "outcome": ours.get(name, "missing"), "text": ""}
                 for name in sorted(good) if ours.get(name) != "passed"]
    return [{"suite": f"{server[0]} with {package}'s tests", "tests": len(kernel),
             "passed_kernel": len(good), "different": different}]


def _source(runner, package):
    """The unpacked source package of the client."""
    folder = runner.work / f"{package}-source"
    if not folder.exists():
        python = runner.python()
        subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package,
                        "-d", folder, package], check=False)
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
    found = [path for path in folder.iterdir() if path.is_dir()]
    if not found:
        raise SystemExit(f"suites: the source package of {package} could not be had")
    return found[0]


def _run(runner, source, server, tests, options, accelerated):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fill = [word.format(port=port) for word in server]
    process = subprocess.Popen(runner.command(fill, accelerated), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
    report = runner.work / "report.xml"
    report.unlink(missing_ok=True)
    try:
        _wait(port)
        words = [runner.python(), "-m", "pytest", "-q", "-p", "no:cacheprovider",
                 "-o", "addopts=", f"--junitxml={report}",
                 *(word.format(port=port) for word in options), *tests]
        subprocess.run(runner.command(words, accelerated), cwd=source, timeout=MINUTES_MAX * 60,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return _outcomes(report)


def _wait(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("suites: the server does not start")


def _outcomes(report: Path):
    if not report.exists():
        return {}
    outcomes = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        outcomes[f"{case.get('classname')}.{case.get('name')}"] = outcome
    return outcomes
