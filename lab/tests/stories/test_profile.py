"""`--profile` with perf itself, and without it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

STAND_IN = """
from wirespeed.runner import profile
profile.WINDOW_S, profile.PROGRAM = 1.0, {program!r}
from wirespeed.cli.app import main
main()
"""


JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
public class Small {
    public static void main(String[] words) throws Exception {
        var port = new InetSocketAddress("127.0.0.1", Integer.parseInt(words[1]));
        var server = HttpServer.create(port, 0);
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, 16);
            try (var body = exchange.getResponseBody()) { body.write(new byte[16]); }
        });
        server.start();
        var busy = new Thread(() -> {
            for (var numbers = new java.util.Random(1); ; ) {
                java.util.Arrays.sort(numbers.ints(10_000).toArray());
            }
        });
        busy.setDaemon(true);
        busy.start();
    }
}
"""


def run(checkout, program="perf", recipe=None):
    recipe = recipe or checkout.recipe(connections=[1, 2])
    words = ["run", recipe, "--accept-noise", "--profile"]
    process = subprocess.Popen(
        [sys.executable, "-c", STAND_IN.format(program=program), *map(str, words)],
        env={**checkout.environment, "WIRESPEED_RUNS": str(checkout.runs)},
        cwd=checkout.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = process.communicate(timeout=180)
    return process, out, err


def test_a_run_with_a_profile_shows_functions_and_leaves_nothing_behind(checkout):
    recipe = checkout.recipe(connections=[1, 2], server_options=["--busy"])
    process, _, err = run(checkout, recipe=recipe)
    assert process.returncode == 0, err
    (found,) = [json.loads(path.read_text()) for path in checkout.latest.glob("profiles/*.json")]
    assert found["samples"] > 0, found["problem"]
    folded = (checkout.latest / "profiles" / f"{found['cell']}.folded").read_text()
    assert "_[k]" in folded and folded.startswith("python")
    page = (checkout.latest / "derived" / "report.html").read_text()
    assert 'id="profile"' in page and '<svg class="flame"' in page
    assert sorted(path.suffix for path in checkout.latest.glob("profiles/*")) == [
        ".folded",
        ".json",
    ]
    assert len(checkout.trials()) == 2, "a profile does not count as a trial"
    assert checkout.nothing_left(process.pid)


def test_methods_of_a_jvm_have_names(checkout, tmp_path):
    source = tmp_path / "Small.java"
    source.write_text(JAVA)
    recipe = checkout.recipe(connections=[1], python=shutil.which("java"), server=source)
    recipe.write_text(
        recipe.read_text().replace('role = "server"', 'role = "server"\ntool = "jvm"')
    )
    process, _, err = run(checkout, recipe=recipe)
    assert process.returncode == 0, err
    (path,) = checkout.latest.glob("profiles/*.folded")
    found = json.loads(path.with_suffix(".json").read_text())
    assert found["samples"] > 0, found["problem"]
    # Without the kernel's protection of links in /tmp a JVM is not asked for names.
    has_names = Path("/proc/sys/fs/protected_symlinks").read_text().strip() == "1"
    unnamed = r"Interpreter|\[compiled Java\]"
    named = r"Interpreter|\b(sun|java|jdk)\.[\w.]+\.\w+"
    assert re.search(named if has_names else unnamed, path.read_text())
    pids = {p["pid"] for trial in checkout.trials() for p in trial["processes"]}
    assert not [pid for pid in pids if Path(f"/tmp/perf-{pid}.map").exists()]
    assert checkout.nothing_left(process.pid)


def test_without_perf_the_run_does_not_begin(checkout):
    process, _, err = run(checkout, "perf-that-is-not-there")
    assert process.returncode == 2
    assert "--profile: perf-that-is-not-there does not run on here" in err
    assert not checkout.runs.exists() or not list(checkout.runs.iterdir())
