"""docs/ci.md, walked: its workflow and the GitHub action, step by step, with a runner that is made up here.

The runner has what GitHub's has: the checked out repository of a pull request, `gh`, `rustup`, and the files that a
step may write. The product next to the sources is this checkout, whose `compare` measures less than by default.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from frontdoor import PATIENCE_S, ROOT

sys.path.insert(0, str(ROOT / "packaging"))
from jobs import MAKEFILE, SERVER

ACTION = ROOT / "packaging" / "action" / "action.yml"
PAGE = ROOT / "docs" / "ci.md"
INPUTS = ("RUN", "BUILD", "BASE", "HEAD", "PORT", "PATH", "CONNECTIONS", "FAIL_ON")
PULL_REQUEST = "7"
PORT = "18096"  # below the range from which the kernel takes ports of clients
SHORT = "--repeat 5 --duration 300ms --accept-noise --method trials"
KIT = ".wirespeed-kit"
#: Of another workflow, which writes as the same user.
OTHERS = {"id": 1, "body": "Coverage: 90 %", "is_own": True}
#: What `gh api` does with comments: pages of one each, and requests with a body from its input.
GH = """#!{python}
import json, os, sys
path, words = {file!r}, sys.argv[1:]
comments = json.load(open(path))
assert os.environ["GH_TOKEN"] == "secret" and words.pop(0) == "api", words
if "--input" in words:
    body = json.load(sys.stdin)["body"]
    assert words[0] == "--method" and words[3:] == ["--input", "-"], words
    if words[1:3] == ["POST", "repos/you/yours/issues/7/comments"]:
        comments.append({{"id": len(comments) + 1, "body": body, "is_own": True}})
    else:
        assert words[1] == "PATCH" and words[2].startswith("repos/you/yours/issues/comments/"), words
        comments[int(words[2].rpartition("/")[2]) - 1]["body"] = body
    json.dump(comments, open(path, "w"))
else:
    assert words[:2] == ["graphql", "--paginate"], words
    given = dict(pair.split("=", 1) for flag, pair in zip(words[2::2], words[3::2]) if flag in ("-f", "-F"))
    query = given.pop("query")
    assert given == {{"owner": "you", "name": "yours", "pull": "7"}} and "after: $endCursor" in query, words
    for one in comments:
        url = "https://github.com/you/yours/pull/7#issuecomment-" + str(one["id"])
        node = {{"url": url, "body": one["body"], "viewerDidAuthor": one["is_own"]}}
        data = {{"nodes": [node], "pageInfo": {{"hasNextPage": one is not comments[-1], "endCursor": "x"}}}}
        print(json.dumps({{"data": {{"repository": {{"pullRequest": {{"comments": data}}}}}}}}))
"""


def steps():
    """Of the action: each step's expressions by variable, and its script."""
    for step in ACTION.read_text().split("    - name: ")[1:]:
        head, script = step.split("run: |\n", 1)
        yield dict(re.findall(r"^        (\w+): \$\{\{ (.+?) \}\}$", head, re.M)), textwrap.dedent(script)


def script():
    return next(steps())[1]


@pytest.mark.parametrize(
    ("base", "head", "revisions"),
    [
        ("0123abcd", "HEAD", ["0123abcd", "HEAD"]),
        ("", "HEAD", ["HEAD^", "HEAD"]),  # a push, a schedule: no pull request that has a base
        ("", "feature", ["feature^", "feature"]),
    ],
)
def test_the_action_compares_two_revisions_in_every_event(tmp_path, base, head, revisions):
    """Outside of pull requests the base was empty, and `--rev` refused it."""
    folder = tmp_path / "kit" / "packaging" / "action"
    folder.mkdir(parents=True)
    written(tmp_path / "kit" / "wirespeed", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    inputs = {f"INPUT_{name}": "" for name in INPUTS} | {"INPUT_BASE": base, "INPUT_HEAD": head}
    done = subprocess.run(
        ["bash", "-e", "-c", script()], capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        env={**os.environ, **inputs, "GITHUB_ACTION_PATH": str(folder), "RUNNER_TEMP": "/tmp"},
    )  # fmt: skip
    words = done.stdout.splitlines()
    assert [words[i + 1] for i, word in enumerate(words) if word == "--rev"] == revisions


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Runner:
    """A pull request of two commits on a runner of its own."""

    def __init__(self, folder, base_work, head_work):
        self.repository, self.temp = folder / "repository", folder / "temp"
        self.summary, self.comments = folder / "summary.md", folder / "comments"
        self.temp.mkdir()
        self._git("init", "-q", folder / "repository", cwd=folder)
        (self.repository / "Makefile").write_text(MAKEFILE)
        self.base = self._commit(base_work)
        self.head = self._commit(head_work)
        bin_folder = folder / "bin"
        written(bin_folder / "rustup", "#!/bin/sh\n")
        written(bin_folder / "gh", GH.format(python=sys.executable, file=str(self.comments)))
        self.comments.write_text(json.dumps([OTHERS]))
        self.environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "RUNNER_TEMP": str(self.temp),
                            "GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_REPOSITORY": "you/yours",
                            "GITHUB_ACTION_PATH": str(self.repository / KIT / "packaging" / "action")}

    def _git(self, *words, cwd=None):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(command, cwd=cwd or self.repository, check=True, capture_output=True, text=True).stdout

    def _commit(self, work):
        (self.repository / "server.py").write_text(SERVER.format(work=work))
        self._git("add", "-A")
        self._git("commit", "-qm", "a build")
        return self._git("rev-parse", "HEAD").strip()

    def clone_kit(self):
        kit = self.repository / KIT
        shorter = f'[ "$1" = compare ] && set -- "$@" {SHORT}'
        written(kit / "wirespeed", f'#!/bin/sh\n{shorter}\nexec {ROOT}/wirespeed "$@"\n')
        shutil.copytree(ACTION.parent, kit / "packaging" / "action")

    def written(self):
        return json.loads(self.comments.read_text())

    def step(self, text, variables=None):
        done = subprocess.run(["bash", "-e", "-c", text], cwd=self.repository, capture_output=True, text=True,
                              env={**self.environment, **(variables or {})}, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE_S * 3)
        return done.returncode, done.stdout + done.stderr

    def value(self, expression, inputs):
        """Of an expression of the action: the first of its alternatives that is not empty."""
        known = {**{f"inputs.{name}": value for name, value in inputs.items()},
                 "github.event.pull_request.base.sha": self.base, "github.event.pull_request.number": PULL_REQUEST}
        return next((known[name] for name in expression.split(" || ") if known[name]), "")


def inputs_of(workflow):
    """The inputs of the action: its defaults, and the values of the workflow."""
    declared = ACTION.read_text().split("\ninputs:\n")[1].split("\nruns:\n")[0]
    inputs = {name: (re.search(r'default: "?([^"\n]*)"?', text) or ["", ""])[1]
              for name, text in re.findall(r"^  ([\w-]+):\n((?:    .*\n?)+)", declared, re.M)}
    given = re.search(r"uses: \./\S+/packaging/action\n        with:\n((?:          .*\n)+)|$", workflow)[1] or ""
    return inputs | {name: value.replace("${{ github.token }}", "secret")
                     for name, value in re.findall(r"^ +([\w-]+): (.+)$", given, re.M)}


@pytest.mark.parametrize(("work", "code", "verdict"), [((1_000, 40_000), 3, "loss"), ((40_000, 1_000), 0, "gain")],
                         ids=["a loss fails the job", "a gain passes"])
def test_the_workflow_judges_a_pull_request_and_comments_on_it(tmp_path, work, code, verdict):
    workflow = re.search(r"^```yaml\n(name: performance\n.*?)^```", PAGE.read_text(), re.M | re.S)[1]
    runner = Runner(tmp_path, *work)
    for command in re.findall(r"^      - run: (.+)$", workflow, re.M):
        if command.startswith("git clone "):
            assert command.endswith(f" {KIT}")
            runner.clone_kit()
        else:
            assert runner.step(command)[0] == 0, command
    inputs = inputs_of(workflow) | {"port": PORT, "connections": "4"}
    results = [runner.step(text, {name: runner.value(expression, inputs) for name, expression in variables.items()})
               for variables, text in steps()]
    assert [result for result, _ in results] == [code, 0], results
    text = runner.summary.read_text()
    assert runner.base[:7] in text and runner.head[:7] in text, text
    assert re.search(rf"server CPU per request, head against base .*\| {verdict} \|", text), text
    comment = runner.temp / "wirespeed-ci" / "comment.md"
    assert comment.read_text() == text
    other, ours = runner.written()
    assert other == OTHERS and ours["body"].startswith(text)


def test_a_comment_replaces_the_one_about_the_same_measurement_and_no_other(tmp_path):
    """The last comment of the user was replaced, which may be another workflow's, or of another server; two uses with
    one command and another path replaced each other in each push."""
    runner = Runner(tmp_path, 1, 2)
    runner.clone_kit()
    for run, path, said in (("./a {port}", "/", "one"), ("./b --port {port}", "/", "two"), ("./a {port}", "/", "three"),
                            ("./a {port}", "/list", "four"), ("./a {port}", "/list", "five")):
        comments_on(runner, said, run=run, path=path)
    bodies = [one["body"].split("\n")[:2] for one in runner.written()]
    assert bodies == [["Coverage: 90 %"], *(["<!-- wirespeed -->", said] for said in ("three", "two", "five"))]


def comments_on(runner, said, **inputs):
    (_, _), (variables, text) = steps()
    written(runner.temp / "wirespeed-ci" / "comment.md", f"<!-- wirespeed -->\n{said}\n")
    inputs = inputs_of("") | {"token": "secret"} | inputs
    given = {name: runner.value(expression, inputs) for name, expression in variables.items()}
    code, output = runner.step(text, given)
    assert code == 0, output


def test_a_comment_of_somebody_else_is_left_alone(tmp_path):
    """The verdict was written into the comment of a user who had copied both lines, and who may change it."""
    runner = Runner(tmp_path, 1, 2)
    runner.clone_kit()
    comments_on(runner, "one", run="./a")
    first, ours = runner.written()
    copied = {**ours, "id": 3, "is_own": False}
    runner.comments.write_text(json.dumps([first, ours, copied]))
    comments_on(runner, "two", run="./a")
    assert [one["body"].split("\n")[1:2] for one in runner.written()] == [[], ["two"], ["one"]]


def test_a_comparison_that_fails_early_posts_no_comment_of_one_before(tmp_path):
    runner = Runner(tmp_path, 1, 2)
    runner.clone_kit()
    written(runner.repository / KIT / "wirespeed", "#!/bin/sh\nexit 2\n")
    written(runner.temp / "wirespeed-ci" / "comment.md", "<!-- wirespeed -->\nof another server\n")
    given = {"GH_TOKEN": "secret", "PULL": PULL_REQUEST, "INPUT_RUN": "./a"}
    assert [runner.step(text, given)[0] for _, text in steps()] == [2, 0]
    assert runner.written() == [OTHERS] and not runner.summary.exists()
