"""Netty's own transport tests, with NIO and with native epoll, on the kernel and accelerated.

Their classes are published on Maven Central; netty/pom.xml names them. Each class is a part and runs
in a JVM of its own. Left out are datagrams and Unix sockets, which are never accelerated.
"""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import parts

HERE = Path(__file__).resolve().parent
SECONDS_MAX_OF_CLASS = 290
# Transport → the part of a jar's name and the folder in it that hold its test classes.
PLACES = {"NIO": (("netty-testsuite-", "io/netty/testsuite/transport/socket/"),
                  ("netty-transport-4.*-tests", "io/netty/channel/socket/nio/")),
          "epoll": (("netty-transport-native-epoll-.*-tests", "io/netty/channel/epoll/"),)}
LEFT_OUT = re.compile(r"Datagram|Multicast|Domain|/Abstract|IovArray")
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"


def compare(runner):
    """One row per transport."""
    jars = _class_path(runner)
    return [row for transport, places in PLACES.items()
            for row in parts.compare(runner, f"Netty's transport tests, {transport}", [
                _part(runner, jars, name) for name in _classes(jars, places)])]


def _classes(jars, places):
    """The names of the test classes in the jars that hold them."""
    names = set()
    for jar, folder in places:
        found = [path for path in jars if re.search(jar, Path(path).name)]
        for entry in zipfile.ZipFile(found[0]).namelist() if found else ():
            if entry.startswith(folder) and entry.endswith("Test.class") and not LEFT_OUT.search(entry):
                names.add(entry.removesuffix(".class").replace("/", "."))
    return sorted(names)


def _part(runner, jars, name):
    reports = runner.work / "netty-reports" / name
    words = ["java", "-Xmx512m", "-Dio.netty.native.deleteLibAfterLoading=true", "-cp", ":".join(jars),
             "org.junit.platform.console.ConsoleLauncher", "execute", "--select-class", name,
             "--reports-dir", reports, "--details", "none", "--disable-banner"]
    return parts.Part(name, words, runner.work, lambda text, code: _outcomes(reports),
                      seconds_max=SECONDS_MAX_OF_CLASS)


def _class_path(runner):
    """The class path, from Maven at the first call for this list of dependencies."""
    path, pom = runner.work / "netty-classpath", HERE / "netty" / "pom.xml"
    if not path.exists() or path.stat().st_mtime < pom.stat().st_mtime:
        subprocess.run(["mvn", "-q", "-B", "-f", pom, PLUGIN, f"-Dmdep.outputFile={path}"], check=True)
    return path.read_text().strip().split(":")


def _outcomes(reports):
    """Test → outcome of one run, whose reports are taken away for the next."""
    outcomes = {}
    for report in reports.glob("TEST-*.xml"):
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            outcomes[case.get("name")] = ("failed" if kinds & {"failure", "error"} else
                                          "skipped" if "skipped" in kinds else "passed")
    shutil.rmtree(reports, ignore_errors=True)
    return outcomes
