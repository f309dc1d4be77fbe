"""Netty's own transport tests, with NIO and with native epoll, on the kernel and accelerated.

Their classes are published on Maven Central; netty/pom.xml names them. Tests of datagrams, of Unix
sockets say nothing about TCP connections and are left out, and so are the longest ones of TLS and
those whose base classes are not published.
"""

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
MINUTES_MAX = 15
PACKAGES = {"NIO": "io.netty.testsuite.transport.socket", "epoll": "io.netty.channel.epoll"}
LEFT_OUT = r".*(Datagram|Domain|Multicast|Sctp|Renegotiate|SessionReuse|SslEcho|Spdy|Permutation|EpollSocketTest|LinuxSocketTest).*"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"


def compare(runner):
    """One row a transport: counts, and the tests that differ twice."""
    rows = []
    for transport, package in PACKAGES.items():
        kernel, _ = _run(runner, ["--select-package", package], False)
        ours, texts = _run(runner, ["--select-package", package], True)
        good = {name for name, outcome in kernel.items() if outcome == "passed"}
        suspects = sorted(name for name in good if ours.get(name, "missing") != "passed")
        if suspects:
            suspects, texts = _again(runner, suspects)
        rows.append({"suite": f"Netty's transport tests, {transport}", "tests": len(kernel),
                     "passed_kernel": len(good),
                     "different": [{"test": name, "outcome": ours.get(name, "missing"),
                                    "text": texts.get(name, "")} for name in suspects]})
    return rows


def _again(runner, suspects):
    """Those of the tests that pass on the kernel and not accelerated when run once more."""
    choice = [word for name in suspects for word in ("--select-class", name.split("#")[0])]
    kernel, _ = _run(runner, choice, False)
    ours, texts = _run(runner, choice, True)
    return [name for name in suspects
            if kernel.get(name) == "passed" and ours.get(name, "missing") != "passed"], texts


def _run(runner, choice, accelerated):
    """(test → outcome, test → message) of one run of the launcher."""
    reports = runner.work / "netty-reports"
    shutil.rmtree(reports, ignore_errors=True)
    words = ["java", "-Xmx512m", "-Dio.netty.native.deleteLibAfterLoading=true",
             "-cp", _class_path(runner), "org.junit.platform.console.ConsoleLauncher", "execute",
             *choice, "--exclude-classname", LEFT_OUT, "--reports-dir", reports,
             "--details", "none", "--disable-banner"]
    with open(runner.work / "netty.log", "wb") as log:
        process = subprocess.Popen(runner.command(words, accelerated), stdout=log,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            process.wait(MINUTES_MAX * 60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return _outcomes(reports)


def _class_path(runner):
    """The class path, from Maven at the first call."""
    path = runner.work / "netty-classpath"
    if not path.exists():
        subprocess.run(["mvn", "-q", "-B", "-f", HERE / "netty" / "pom.xml", PLUGIN,
                        f"-Dmdep.outputFile={path}"], check=True)
    return path.read_text().strip()


def _outcomes(reports):
    outcomes, texts = {}, {}
    for report in reports.glob("TEST-*.xml"):
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname')}#{case.get('name')}"
            wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
            is_skipped = case.find("skipped") is not None
            outcomes[name] = "failed" if wrong is not None else "skipped" if is_skipped else "passed"
            if wrong is not None:
                texts[name] = (wrong.get("message") or wrong.get("type") or "").splitlines()[0][:200]
    return outcomes, texts
