"""Finds which modules of a Rust crate use each other, from the text of its files."""

import re


def code_of(path):
    """The file without comments, strings and its tests."""
    text = path.read_text().split("\n#[cfg(test)]\nmod ")[0]
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)


def module_of(path, source):
    """`src/a/b.rs` and `src/a/b/mod.rs` → ("a", "b"); the crate's root → ()."""
    parts = path.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def leaves(tree, prefix=()):
    """Every path in the braces of a `use`: `a::{b, c::{d}}` → a::b, a::c::d."""
    depth, start, parts = 0, 0, []
    for at, letter in enumerate(tree):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(tree[start:at])
            start = at + 1
    for part in [*parts, tree[start:]]:
        head, brace, rest = part.strip().partition("{")
        names = tuple(name.strip() for name in head.split("::") if name.strip())
        if brace:
            yield from leaves(rest.rsplit("}", 1)[0], prefix + names)
        elif names:
            yield (*prefix, names[0].split(" ")[0], *(n.split(" ")[0] for n in names[1:]))


def paths_in(code):
    """Every path that begins with `crate` or `super`, imported or written out."""
    for statement in re.findall(r"\buse\s+([^;]+);", code):
        yield from leaves(statement)
    code = re.sub(r"\buse\s+[^;]+;", "", code)
    for written in re.findall(r"(?<![\w:$])((?:crate|super)(?:::\w+)+)", code):
        yield tuple(written.split("::"))


def resolve(path, module, modules):
    """The module of the crate that a path leads into; None for other crates."""
    if path[0] == "crate":
        names = path[1:]
    elif path[0] == "super":
        ups = next((at for at, name in enumerate(path) if name != "super"), len(path))
        names = module[:len(module) - ups] + path[ups:]
    else:
        return None
    while names not in modules:
        names = names[:-1]
    return names


def uses(source):
    """Module → the modules that it uses, of the crate whose `src` this is."""
    files = {module_of(path, source): path for path in source.rglob("*.rs")}
    found = {}
    for module, path in files.items():
        targets = (resolve(used, module, files) for used in paths_in(code_of(path)))
        found[module] = {target for target in targets if target is not None}
    return found


def circles(source):
    """Sets of modules next to each other in one folder that lead back to themselves.

    A folder counts as one with the file that it belongs to; uses between a file and its own
    folder are not looked at.
    """
    edges = {}
    for module, targets in uses(source).items():
        for target in targets:
            common = next((at for at, (a, b) in enumerate(zip(module, target)) if a != b), None)
            if common is not None:
                edges.setdefault(module[:common + 1], set()).add(target[:common + 1])
    return sorted({part for part in edges if part in reachable(edges, part)})


def reachable(edges, start):
    """Every node that can be reached from `start` in one step or more."""
    seen, todo = set(), [start]
    while todo:
        for target in edges.get(todo.pop(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen
