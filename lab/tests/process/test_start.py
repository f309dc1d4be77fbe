"""What a program said last, as the reason why it ended."""

from types import SimpleNamespace

import pytest

from wirespeed.process.start import Started

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
