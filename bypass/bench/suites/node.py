"""Node's own tests of net, http, https, http2, tls, cluster and streams over sockets.

The tests come from Debian's source package; the installed interpreter may be newer: tests that fail
on the kernel for that reason do not count.
"""

import re

import parts
import sources

FILES = re.compile(r"test-(net|http|https|http2|tls|cluster|child-process-(fork|send)|pipe|stream-pipeline"
                   r"|socket|tcp|keepalive|whatwg-fetch)[-.]")
FLAGS = re.compile(r"^// Flags: (.*)$", re.MULTILINE)


def compare(runner):
    folder = sources.debian(runner, "nodejs")
    files = [path for place in ("parallel", "sequential", "async-hooks")
             for path in sorted((folder / "test" / place).glob("test-*"))
             if FILES.match(path.name) and path.suffix in (".js", ".mjs")]
    return parts.compare(runner, "Node's tests of sockets", [
        parts.Part(f"{path.parent.name}/{path.stem}", ["node", *_flags(path), path], folder / "test",
                   parts.by_exit_code, {"NODE_TEST_DIR": str(runner.work)}, seconds_max=40)
        for path in files])


def _flags(path):
    """The options that the file itself asks for."""
    return " ".join(FLAGS.findall(path.read_text(errors="replace"))).split()
