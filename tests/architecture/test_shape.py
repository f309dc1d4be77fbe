"""Guards on the shape of the tree: where unsafe may live, first lines, links, words that leak."""

import os
import re
import subprocess

from components import ROOT

UNSAFE_ROOMS = ("bypass/sys/", "bypass/stats/", "bypass/shm/", "bypass/preload/", "bypass/stack/src/sys/",
                "bypass/xdp/src/sys/", "bypass/packetdrill/", "load/engine/src/sys/")
COMMENT = {".rs": ("//!", "//"), ".py": ('"""', "#!"), ".java": ("/*", "//", "package"),
           ".toml": ("#",), ".opf": ("#",), ".c": ("/*", "//")}


def tracked(*endings):
    listing = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                             cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.splitlines()
            if name.endswith(endings) and (ROOT / name).is_file()]


def relative(path):
    return str(path.relative_to(ROOT))


def test_unsafe_stays_in_its_components():
    pattern = re.compile(r"\bunsafe\s*(\{|fn|impl|extern)")
    strays = [relative(path) for path in tracked(".rs")
              if not relative(path).startswith(UNSAFE_ROOMS) and pattern.search(path.read_text())]
    assert not strays


def test_every_source_file_opens_with_what_it_is_for():
    silent = []
    for path in tracked(".rs", ".py", ".opf"):
        if "tests/programs" in relative(path) or path.name == "__init__.py":
            continue
        first = next((line for line in path.read_text().splitlines() if line.strip()), "#!")
        if not first.startswith(COMMENT[path.suffix]):
            silent.append(relative(path))
    assert not silent


def test_a_script_that_names_its_interpreter_can_be_run():
    """A benchmark's recorded command starts its file, and once could not."""
    mode = {path: os.access(path, os.X_OK) for path in tracked(".py", ".sh") if path.read_text().startswith("#!")}
    assert mode and not [relative(path) for path, is_executable in mode.items() if not is_executable]


def test_links_in_documents_lead_somewhere():
    dead = []
    for path in tracked(".md"):
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            is_ours = not link.startswith(("http:", "https:", "mailto:"))
            if is_ours and not (path.parent / link).exists():
                dead.append(f"{relative(path)} → {link}")
    assert not dead


def test_only_the_two_commands_are_executable_at_the_root():
    executable = {path.name for path in tracked("") if path.parent == ROOT
                  and path.stat().st_mode & 0o111}
    assert executable == {"wirespeed", "test"}


def test_the_tree_does_not_name_the_place_where_it_was_checked_out():
    endings = (".rs", ".py", ".java", ".md", ".toml", ".sh", ".xml")
    assert not [relative(path) for path in tracked(*endings)
                if f"{ROOT}/" in path.read_text(errors="replace")]
