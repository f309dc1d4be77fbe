"""One name for one thing: a search for a class finds one definition, not two."""

import ast
from collections import defaultdict
from pathlib import Path

import wirespeed

SOURCES = Path(wirespeed.__file__).parent


def classes(folder):
    """class → the files that define it"""
    found = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(folder)))
    return found


def test_no_class_exists_twice():
    found = classes(SOURCES)
    assert len(found) > 100
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_a_second_class_of_a_name_is_seen(tmp_path):
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("class Thing:\n    pass\n")
    assert classes(tmp_path) == {"Thing": ["one.py", "two.py"]}
