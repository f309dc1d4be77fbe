"""Starting programs, and what one said last as the reason why it ended."""

import sys
from types import SimpleNamespace

import pytest

from wirespeed.fleet.channel import Transport
from wirespeed.fleet.fleet import Fleet
from wirespeed.process.start import Order, Started, StartFailed, start_all

FLEET = SimpleNamespace(host_of=lambda _: SimpleNamespace(bring_back=lambda _: None))


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("first\nlast\n\n", "last"),
        ("\x1b[31;1mERROR\x1b[0m no such file\n\x1b[0m\n", "ERROR no such file"),
        ("\x1b[2K\rcannot bind\x1b[K\n", "cannot bind"),
        ("10 %\r100 %\x07\x00\n", "10 % 100 %"),
        ("\x1b]0;title\x07port in use\x1b\\\n", "port in use"),
        ("cut off \x1b", "cut off"),
        ("\x1b[0m\n \r\n", ""),
    ],
)
def test_last_words_do_not_change_a_terminal(tmp_path, output, words):
    """The reset of a colour, alone on a line, was the reason; others coloured what came after."""
    (tmp_path / "err").write_bytes(output.encode())
    started = Started(SimpleNamespace(label="app-0"), [], 1, tmp_path / "out", tmp_path / "err")
    assert started.last_words(FLEET) == words


@pytest.fixture
def far():
    """A fleet of one host that does not share the lab's files, as it believes."""
    fleet = Fleet(
        [Transport("far", python=sys.executable, shares_files=False)], "test-start", cgroups=False
    )
    yield fleet
    fleet.close()


def order_of(argv, cwd, folder):
    instance = SimpleNamespace(
        label="app-0", host="far", role="server", cores=[], limits={}, cwd=str(cwd), user="",
        netns=None, port=None,
    )  # fmt: skip
    return Order(instance, argv, {}, folder)


def test_files_of_the_recipe_are_found_on_a_host_that_lacks_its_folder(far, tmp_path, monkeypatch):
    """A recipe of `init` starts its server in `{{ recipe.dir }}`: other hosts refused it."""
    recipe, here, there = (tmp_path / name for name in ("recipe", "here", "there"))
    (recipe / "sub").mkdir(parents=True)
    (recipe / "server.sh").write_text("cat $1 /dev/null")
    (recipe / "sub" / "words").write_text("hello\n")
    host = far["far"]
    host.folders = {str(here): str(there)}
    send = host.send

    def send_elsewhere(op, **words):
        if op == "spawn":
            recipe.rename(tmp_path / "of another host")
        return send(op, **words)

    monkeypatch.setattr(host, "send", send_elsewhere)
    start_all(far, [order_of(["sh", "server.sh", "./sub/words"], recipe, here)], [recipe])
    assert host.wait_exit(["app-0"], 60) == "app-0"
    assert (there / "server-app-0.out").read_text() == "hello\n"


def test_a_folder_that_a_host_lacks_is_named(far, tmp_path):
    far["far"].folders = {str(tmp_path / "here"): str(tmp_path / "there")}
    order = order_of(["sh"], tmp_path / "nowhere", tmp_path / "here")
    with pytest.raises(StartFailed, match=r"app-0 cannot be started: sh: cwd .*/nowhere: No such"):
        start_all(far, [order], [])
