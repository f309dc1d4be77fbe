"""Reads the table of layers in ARCHITECTURE.md and finds what the files of bypass/stack use against it."""

import re

import rust_modules
from components import ROOT

SOURCE = ROOT / "bypass" / "stack" / "src"


def table():
    """The layers from the bottom up, as the table in ARCHITECTURE.md counts them."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    return [name for _, name in rows]


def upward(source, layers):
    """Every use of a higher layer, or of the crate's root, through which any layer could be reached."""
    arrows = []
    for module, targets in rust_modules.uses(source).items():
        for target in targets:
            if not module or module[:1] == target[:1]:
                continue
            if not target or layers.index(target[0]) > layers.index(module[0]):
                arrows.append(f"{'::'.join(module)} uses {'::'.join(target) or 'the root'}")
    return sorted(arrows)


def strange_methods(source):
    """Methods of a type that another layer defines: calls of them would be arrows that no import shows."""
    files = {module: rust_modules.code_of(path) for path in source.rglob("*.rs")
             if (module := rust_modules.module_of(path, source))}
    homes = {}
    for module, code in files.items():
        for name in re.findall(r"\b(?:struct|enum|union) (\w+)", code):
            homes.setdefault(name, set()).add(module[0])
    found = []
    for module, code in files.items():
        for name in re.findall(r"^impl(?:<[^{]*?>)? (?:[^{;]+ for )?(?:\w+::)*(\w+)", code, re.M):
            if name in homes and module[0] not in homes[name]:
                found.append(f"{'::'.join(module)} has methods of {name}")
    return sorted(found)
