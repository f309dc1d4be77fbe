"""Each mistake in docs/mistakes gets exactly the message that its page shows.

`UPDATE_MISTAKES=1 pytest -c tests/pytest.ini tests/system/test_mistakes.py` writes the present messages
into the pages, where a `…` in the old one does not fit the new one.
"""

import os

import mistakes
import pytest

ENTRIES_LEAST = 150
# Checked in one JVM by MistakesTest of gateway-runtime.
OF_JAVA = ("gateway.md",)


@pytest.fixture
def nothing_is_left_behind():
    """Not checked for the whole machine here: run_mistakes.py reports what a command leaves."""


@pytest.mark.parametrize("name", sorted(
    path.name for path in mistakes.PAGES.glob("*.md") if path.name not in OF_JAVA))
def test_a_mistake_gets_the_message_of_its_page(name, tmp_path):
    path = mistakes.PAGES / name
    page = mistakes.parse(path.read_text())
    outputs = mistakes.outputs_of(page.entries, tmp_path)
    if os.environ.get("UPDATE_MISTAKES"):
        path.write_text(mistakes.rewritten(page, outputs))
        page = mistakes.parse(path.read_text())
    misfits = mistakes.misfits(page, outputs)
    assert not misfits, "\n".join(misfits)


def test_there_are_many_mistakes_and_each_message_is_short():
    pages = {path.name: mistakes.parse(path.read_text()) for path in mistakes.PAGES.glob("*.md")}
    assert sum(len(page.entries) for page in pages.values()) >= ENTRIES_LEAST
    for name, page in pages.items():
        for entry in page.entries:
            lines = [line for line in entry.expected.splitlines() if not line.startswith("(exit status")]
            assert lines, f"{name}: no message for {entry.command} {entry.files}"
            assert len(lines) == 1 or name in OF_JAVA, entry.expected


PAGE = """# Mistakes
```toml a.toml
one = 1
two = 2
```
```console
$ ./wirespeed plan a.toml
```
```diff
-one = 1
+one = 3
 two = 2
```
```text
wrong one
```
```console
$ first
output of … it
$ second
(exit status 1)
```
"""


def test_a_page_is_read_as_files_changes_and_commands():
    changed, first, second = mistakes.parse(PAGE).entries
    assert changed.files == {"a.toml": "one = 3\ntwo = 2\n"}
    assert (changed.command, changed.expected) == ("./wirespeed plan a.toml", "wrong one\n")
    assert first.files == second.files == {"a.toml": "one = 1\ntwo = 2\n"}
    assert (first.command, first.expected) == ("first", "output of … it\n")


def test_only_outputs_that_do_not_fit_are_rewritten():
    page = mistakes.parse(PAGE)
    assert mistakes.rewritten(page, ["wrong one\n", "output of 7 it\n", "(exit status 1)\n"]) == PAGE
    text = mistakes.rewritten(page, ["wrong two\n", "other\n", "(exit status 1)\n"])
    assert text == PAGE.replace("wrong one", "wrong two").replace("output of … it", "other")


def test_a_change_of_lines_that_are_not_in_the_file_is_an_error():
    with pytest.raises(AssertionError):
        mistakes.parse(PAGE.replace("-one = 1", "-one = 9"))
