"""What is asked of every HTTP server: curl's answers, and ab's counts under some load."""

import re
import subprocess

SMALL, LARGE = b"hello from a file\n" * 60, bytes(range(256)) * 8192


def files(place, folder="www"):
    """A folder with a small and a large file; its path."""
    place.write(f"{folder}/small.txt", SMALL)
    place.write(f"{folder}/large.bin", LARGE)
    (place.folder / folder).chmod(0o755)
    return place.folder / folder


def ask(place, port, paths=("/small.txt", "/large.bin"), requests=2000, keep=True, posts=False):
    """Answers to single requests, to several on one connection, and to many at once."""
    base = f"http://127.0.0.1:{port}"
    for path in paths:
        yield place.client(["curl", "-sS", "-o", place.folder / "got", "-w", "%{http_code} %{size_download}",
                            base + path])
        yield checksum(place.folder / "got")
    several = [base + paths[0]] * 5
    yield place.client(["curl", "-sS", "-w", "%{http_code} %{num_connects}\n", *several])
    yield place.client(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", base + "/not-there"])
    if posts:
        body = place.write("body", LARGE[:300_000])
        yield place.client(["curl", "-sS", "--data-binary", f"@{body}", base + paths[0]])
    if requests:
        yield load(place, base + paths[0], requests, [])
        if keep:
            yield load(place, base + paths[0], requests, ["-k"])


def load(place, url, requests, words, connections=8):
    """ab's counts: all complete, none failed."""
    text = place.client(["ab", "-q", "-d", "-S", "-s", "10", "-n", requests, "-c", connections, *words, url])
    counts = re.findall(r"^(Complete requests|Failed requests|Non-2xx responses):\s+(\d+)", text, re.M)
    return dict(counts) or text[-200:]


def checksum(path):
    if not path.exists():
        return "nothing"
    return subprocess.run(["sha256sum", path], stdout=subprocess.PIPE).stdout.decode().split()[0][:16]
