"""The table of mistakes: what is wrong in a recipe, and the one line that the user reads."""
# ruff: noqa: E501 - a table reads best with one row a line

import subprocess
import sys

import pytest

from wirespeed.errors import RecipeError
from wirespeed.recipe import read

GOOD = """
wirespeed = 1
name = "good"
[axes]
payload = [16, 128]
stack = ["kernel", "balanced"]
[axis.payload]
16 = { file = "small" }
[plan]
repeat = 5
duration = "10s"
baseline = { stack = "kernel" }
[stacks.kernel]
[stacks.balanced]
provider = "auto"
[[process]]
name = "app"
role = "server"
port = { base = 8000 }
argv = ["./app", "--port", "{port}"]
stack = "{stack}"
ready = { http = "http://{server.addr}:{port}/" }
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{payload}", "http://{server.addr}:{app.port}/"]
[[metric]]
name = "rps"
from = "gen"
[[table]]
rows = "payload"
columns = "stack"
value = "rps"
gain = { over = "kernel" }
"""

MISTAKES = [
    # what is written wrong: (right text, wrong text, the line)
    ('duration = "10s"', 'duratoin = "10s"', "plan.duratoin: unknown key; did you mean 'duration'?"),
    ('duration = "10s"', "duration = 10", "plan.duration: '10' has no unit"),
    ('duration = "10s"', 'method = "duel"', "plan.method: 'duel' is not one of 'trials' or 'duet'"),
    ('baseline = { stack = "kernel" }', 'method = "duet"', 'plan: method = "duet" compares with a baseline: write baseline = { stack = "kernel" }'),
    ('duration = "10s"', 'method = "duet"\norder = "blocked"', 'plan: method = "duet" is interleaved; leave out order = "blocked"'),
    ('duration = "10s"', 'duet = { slice = "5s" }', "plan.duet: slice is 2ms to 1s; 25ms is usual"),
    ('duration = "10s"', 'duet = { skip = "20ms" }', "plan.duet: skip is at most half a slice"),
    ('duration = "10s"', 'duet = { pair = "100ms" }', "plan.duet: pair has room for at least 20 slices"),
    ('duration = "10s"', 'duet = { drain = "0s" }', "plan.duet: drain and block are longer than 0"),
    ('duration = "10s"', 'duet = { slices = "20ms" }', "plan.duet.slices: unknown key; did you mean 'slice'?"),
    ('duration = "10s"', 'duration = "10 sec"', "plan.duration: '10 sec' has the unknown unit 'sec'"),
    ('duration = "10s"', 'duration = "0"', "plan.duration: is zero"),
    ('duration = "10s"', 'duration = "900us"', "plan.duration: is shorter than 1ms"),
    ('duration = "10s"', "duration = nan", "plan.duration: 'nan' is not a duration"),
    ("payload = [16, 128]", "payload = [16, nan]", "axes.payload[1]: nan is wrong here; it must be a"),
    ("payload = [16, 128]", "payload = [16, inf]", "axes.payload[1]: inf is wrong here; it must be a"),
    ("payload = [16, 128]", 'payload = [16, "16"]', "axes.payload: 16 and '16' cannot be told apart in tables"),
    ("payload = [16, 128]", "payload = [1, true]", "axes.payload: 1 and True cannot be told apart in tables"),
    ("payload = [16, 128]", "payload = [16, 16.0]", "axes.payload: 16 and 16.0 cannot be told apart in tables"),
    ('from = "gen"', 'from = "gen"\nfield = "bytes_per_second"\nunit = "MiB/s"', "metric[0]: bytes_per_second is told in B/s, kB/s, MB/s, GB/s, Mb/s, Gb/s, not in 'MiB/s'"),
    ('from = "gen"', 'from = "gen"\nunit = "Gb/s"', 'metric[0]: requests are not told in Gb/s; add field = "bytes_per_second"'),
    ("repeat = 5", "repeat = 0", "plan.repeat: 0 is out of range; it must be at least 1"),
    ("repeat = 5", 'repeat = "five"', "plan.repeat: 'five' is wrong here; it must be a whole number"),
    ("repeat = 5", 'order = "random"', "plan.order: 'random' is not one of 'interleaved' or 'blocked'"),
    ("repeat = 5", 'restart = "conections"', "plan.restart: 'conections' is no axis"),
    ('stack = "kernel" }', 'stak = "kernel" }', "plan.baseline.stak: 'stak' is no axis; did you mean"),
    ('stack = "kernel" }', 'stack = "kernal" }', "'kernal' is no value of axis stack; did you mean 'kernel'"),
    ("repeat = 5", "skip = [{ payload = 17 }]", "plan.skip[0].payload: 17 is no value of axis payload"),
    ("wirespeed = 1", "wirespeed = 2", "wirespeed: 2 is not one of 1"),
    ("wirespeed = 1", "", "wirespeed: is missing"),
    ('name = "good"', 'name = "1 bad name"', "name: '1 bad name' is not a name"),
    ("payload = [16, 128]", "payload = []", "axes.payload: is empty"),
    ("payload = [16, 128]", "payload = 16", "axes.payload: 16 is wrong here; it must be a list or a table"),
    ("payload = [16, 128]", "payload = [16, 16]", "axes.payload: has the same value twice"),
    ("payload = [16, 128]", "payload = { rampe = [1] }", "axes.payload"),
    ("[axis.payload]", "[axis.paylod]", "axis.paylod: 'paylod' is no axis; did you mean 'payload'?"),
    ('provider = "auto"', 'provider = "dpdk"', "stacks.balanced.provider: 'dpdk' is not one of"),
    ('stack = "{stack}"', 'stack = "fast"', "process.app.stack: 'fast' is no stack"),
    ('role = "server"', 'role = "client"', "process.app.role: 'client' is not one of"),
    ('role = "server"', 'role = "load"', "process: no process has role = \"server\""),
    ('tool = "load"', 'prepare = ["true"]', "prepare belongs to a server or an origin"),
    ('name = "gen"', 'name = "app"', "process[1].name: 'app' is taken by another process"),
    ("port = { base = 8000 }", "port = { base = 70000 }", "process.app.port.base: 70000 is out of range"),
    ("port = { base = 8000 }", "port = { bse = 1 }", "process.app.port.bse: unknown key; did you mean 'base'?"),
    ("port = { base = 8000 }", "limits = { files = 1 }", "process.app.limits.files"),
    ('argv = ["./app", "--port", "{port}"]', "argv = []", "process.app.argv: [] is wrong here; it must be a list"),
    ('argv = ["./app", "--port", "{port}"]', "argv = \"./app\"", "process.app.argv: './app' is wrong here"),
    ('from = "gen"', 'from = "gne"', "metric[0].from: 'gne' is no process with role load; did you mean 'gen'?"),
    ('tool = "load"', 'tool = "abc"', "process.gen.tool: 'abc' is not one of"),
    ('tool = "load"', 'figures = { text = { rps = "rate (.*)" }, json = { rps = "a" } }', "process.gen.figures: write json = { … } or text = { … }, one of them"),
    ('tool = "load"', 'figures = { json = { mean = "a" } }', "process.gen.figures: rps is missing"),
    ('tool = "load"', 'figures = { text = { rps = "rate" } }', "process.gen.figures.text.rps: 'rate' must have one group"),
    ('tool = "load"', 'figures = { text = { rps = "(" } }', "process.gen.figures.text.rps: '(' is no regular expression"),
    ('tool = "load"', 'figures = { json = { rsp = "a" } }', "process.gen.figures.json"),
    ('tool = "load"', "", "metric[0].from: 'gen' gives no figures"),
    ('rows = "payload"', 'rows = "pay"', "table[0].rows: 'pay' is no axis"),
    ('value = "rps"', 'value = "rpm"', "table[0].value: 'rpm' is no metric; did you mean 'rps'?"),
    ('over = "kernel"', 'over = "kernle"', "table[0].gain.over: 'kernle' is no value of axis stack"),
    ('columns = "stack"', "", "table[0].gain: a gain compares columns"),
    ('ready = { http = "http://{server.addr}:{port}/" }', "ready = { status = 200 }", "process.app.ready: write http ="),
    ('ready = { http = "http://{server.addr}:{port}/" }', 'ready = { tcp = "a:1", length = 5 }', "process.app.ready: status and length belong to http"),
    ('ready = { http = "http://{server.addr}:{port}/" }', 'ready = { log = "(" }', "process.app.ready.log: '(' is no regular expression"),
    ('ready = { http = "http://{server.addr}:{port}/" }', 'ready = { log = "up", tcp = "a:1" }', "one of them"),
    ('from = "gen"', 'from = "gen"\nquantiles = [0.5]', 'metric[0]: times are not added up; write combine = "histogram"'),
    ('from = "gen"', 'from = "gen"\ncombine = "histogram"\nquantiles = [50, 99]', "50 is no quantile; write 0.5, 0.99"),
    ('argv = ["./app", "--port", "{port}"]', 'argv = ["./app --port {port}"]', 'process.app.argv: is a single text; write each word as one of its own: ["./app", "--port", "{port}"]'),
    ("[[metric]]", "[metric]", "metric: is a list of tables; write its head as [[metric]]"),
    ("[plan]", '[sample]\nload = ["memory"]\n[plan]', "sample.load[0]: 'memory' is not one of 'cpu'"),
    ("[plan]", "[plan", "not TOML:"),
]  # fmt: skip

# Placeholders are filled when the plan is made, for every cell, before anything starts.
PLACEHOLDERS = [
    ('"{port}"]', '"{prot}"]', "process.app.argv: there is no 'prot' here"),
    ('"{port}"]', '"{port"]', "process.app.argv: a '{' without '}'"),
    ('"{port}"]', '"port}"]', "process.app.argv: a '}' without '{'"),
    ('"{port}"]', '"{port; rm}"]', "';' is not part of the placeholder language"),
    ('"{port}"]', '"{port()}"]', "process.app.argv"),
    ('"{port}"]', '"{__import__}"]', "there is no '__import__' here"),
    ('"{port}"]', '"{1 / 0}"]', "division by zero"),
    ('"{port}"]', '"{stack * 2}"]', "'kernel' is not a number"),
    ('"{port}"]', '"{gen.port}"]', "there is no 'gen.port'"),
    ('"{port}"]', '"{asset:nothing}"]', "there is no asset 'nothing'"),
    (
        'role = "server"',
        'role = "server"\ncount = "{payload / 1000}"',
        "process.app.count: 0 is not a count",
    ),
    (
        'http = "http://{server.addr}:{port}/"',
        'tcp = "{server.addr}"',
        "process.app.ready.tcp: '127.0.0.1' is not ADDRESS:PORT",
    ),
    ("{port}/", "{port}/ü", "ready.http: 'http://127.0.0.1:8000/ü' holds what a URL has to encode"),
    (
        "{port}/",
        "{port}0000/",
        "ready.http: 'http://127.0.0.1:80000000/' is no address: Port out of",
    ),
    (
        'http = "http:',
        'http = "https:',
        "is not http://HOST:PORT/PATH; of a server that speaks TLS",
    ),
    (
        "port = { base = 8000 }",
        "port = { base = 65535 }\ncount = 2",
        "process.app.port: instance 1 would have port 65536; the highest is 65535",
    ),
    ('stack = "{stack}"', 'stack = "{payload}"', "there is no [stacks.16]"),
]


def written(tmp_path, right, wrong, text=GOOD):
    assert right in text
    path = tmp_path / "r.toml"
    path.write_text(text.replace(right, wrong, 1))
    return path


def test_the_good_recipe_is_good(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(GOOD)
    assert read.read(path).name == "good"


@pytest.mark.parametrize(
    ("right", "wrong", "line"), MISTAKES, ids=[m[1] or f"no {m[0]}" for m in MISTAKES]
)
def test_a_mistake_is_one_line_with_file_and_key(tmp_path, right, wrong, line):
    with pytest.raises(RecipeError) as caught:
        read.read(written(tmp_path, right, wrong))
    message = str(caught.value)
    assert message.startswith("r.toml: ")
    assert line in message
    assert "\n" not in message


@pytest.mark.parametrize(("right", "wrong", "line"), PLACEHOLDERS, ids=[m[1] for m in PLACEHOLDERS])
def test_a_bad_placeholder_is_one_line_before_anything_starts(tmp_path, right, wrong, line):
    from wirespeed.recipe.resolve import Place
    from wirespeed.runner import plan
    from wirespeed.topology import one_host, roles_of

    path = written(tmp_path, right, wrong)
    recipe = read.read(path)
    with pytest.raises(RecipeError) as caught:
        here = Place(tmp_path, path, one_host(roles_of([0, 1], False)))
        plan.make(recipe, here, plan.PlanOptions(fit="share"))
    message = str(caught.value)
    assert message.startswith("r.toml: process.app.")
    assert line in message
    assert "\n" not in message


def test_the_command_prints_the_line_and_leaves_with_2(tmp_path):
    path = written(tmp_path, "repeat = 5", "repeats = 5")
    command = [sys.executable, "-m", "wirespeed", "run", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "wirespeed: r.toml: plan.repeats: unknown key; did you mean 'repeat'?\n"
    assert done.stdout == ""


def test_a_recipe_typed_as_a_command_is_told_how_to_measure_it():
    command = [sys.executable, "-m", "wirespeed", "quickstart"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    line = "quickstart is a recipe; measure it with: wirespeed run quickstart"
    assert done.stderr == f"wirespeed: {line}\n"


@pytest.mark.parametrize("name", ["net core", "../etc/passwd", "NET.x", "net..x", ""])
def test_a_strange_name_of_a_sysctl_is_refused_before_anything_starts(tmp_path, name):
    path = tmp_path / "r.toml"
    path.write_text(GOOD + f'\n[tune]\nsysctl = {{ "{name}" = 1 }}\n')
    with pytest.raises(RecipeError, match=r"r\.toml: tune\.sysctl"):
        read.read(path)


def read_text(tmp_path, text):
    path = tmp_path / "some.toml"
    path.write_text(text)
    return read.read(path)


@pytest.mark.parametrize("cores", ['"banana"', '"1"', '"0-1"', "[0, 0]", "[]", '"from x"', "[-1]"])
def test_cores_that_name_none_are_refused(tmp_path, cores):
    text = GOOD.replace('role = "server"', f'role = "server"\npin = {{ cores = {cores} }}')
    with pytest.raises(RecipeError, match=r"process\.app\.pin\.cores: .* names no cores"):
        read_text(tmp_path, text)


@pytest.mark.parametrize("cores", ['"from 0"', '"all"', "[2, 3]"])
def test_cores_that_are_right(tmp_path, cores):
    read_text(
        tmp_path, GOOD.replace('role = "server"', f'role = "server"\npin = {{ cores = {cores} }}')
    )


@pytest.mark.parametrize("word", ['"-d", "10s"', '"-d10s"', '"--duration=10s"'])
def test_a_generators_own_duration_is_refused(tmp_path, word):
    text = GOOD.replace('argv = ["-c", "{payload}"', f'argv = [{word}, "-c", "{{payload}}"')
    with pytest.raises(RecipeError, match=r"process\.gen\.argv: .*write \{duration\}"):
        read_text(tmp_path, text)


def test_a_mistake_in_a_process_names_it(tmp_path):
    text = GOOD.replace('argv = ["./app"', 'argvv = ["./app"')
    with pytest.raises(RecipeError, match=r"process\.app\.argvv: unknown key"):
        read_text(tmp_path, text)
