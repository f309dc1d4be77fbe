"""Files are UTF-8 wherever the lab runs: the user's locale must not affect their content."""

import ast
from pathlib import Path

import wirespeed

SOURCES = Path(wirespeed.__file__).parent
AGENT = SOURCES / "agent"  # writes numbers and plain names only, and runs without UTF-8


def left_to_the_locale(text):
    """Lines of calls that open text files without their encoding."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or any(k.arg == "encoding" for k in node.keywords):
            continue
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        is_open = isinstance(node.func, ast.Name) and node.func.id == "open"
        is_text = is_open and not any("b" in str(word) for word in words[:1])
        method = getattr(node.func, "attr", "")
        is_text |= method == "read_text" and not node.args
        is_text |= method == "write_text" and len(node.args) == 1
        if is_text:
            yield node.lineno


def test_every_text_file_has_its_encoding():
    paths = [path for path in SOURCES.rglob("*.py") if AGENT not in path.parents]
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in paths
        for line in left_to_the_locale(path.read_text(encoding="utf-8"))
    ]
    assert len(paths) > 100 and found == []


def test_a_file_that_is_left_to_the_locale_is_seen():
    text = 'open(a)\nopen(a, "rb")\np.read_text()\np.write_text(t)\np.read_text(encoding="utf-8")'
    assert list(left_to_the_locale(text)) == [1, 3, 4]
