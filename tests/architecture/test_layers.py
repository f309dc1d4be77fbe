"""The layers of bypass/stack lie as the table in ARCHITECTURE.md says: nothing uses a higher one."""

import re

import layers
import pytest

ORDER = ["low", "high"]


def test_every_floor_has_a_row_and_every_row_a_floor():
    modules = {path.stem for path in layers.SOURCE.iterdir() if path.stem != "lib"}
    assert modules == set(layers.table())


def test_the_root_shows_the_floors_in_their_order():
    root = (layers.SOURCE / "lib.rs").read_text()
    assert re.findall(r"^(?:pub )?mod (\w+);", root, re.M) == layers.table()


def test_no_floor_uses_a_higher_one():
    assert not layers.upward(layers.SOURCE, layers.table())


def test_methods_stand_on_the_floor_of_their_type():
    assert not layers.strange_methods(layers.SOURCE)


def planted(tmp_path, low, high):
    (tmp_path / "lib.rs").write_text("mod low;\nmod high;\npub use high::X;")
    (tmp_path / "low").mkdir()
    (tmp_path / "low.rs").write_text("mod inner;\npub struct Y;\nimpl Y {\n}\n")
    (tmp_path / "low" / "inner.rs").write_text(low)
    (tmp_path / "high.rs").write_text(high)
    return tmp_path


@pytest.mark.parametrize(("text", "found"), [
    ("use crate::high::X;", ["low::inner uses high"]),
    ("fn f() { crate::high::g() }", ["low::inner uses high"]),
    ("use super::super::high;", ["low::inner uses high"]),
    ("use crate::X;", ["low::inner uses the root"]),
    ("use super::Y;", []),
])
def test_an_arrow_upwards_is_seen(tmp_path, text, found):
    assert layers.upward(planted(tmp_path, text, "use crate::low::Y;"), ORDER) == found


@pytest.mark.parametrize("text", [
    "use crate::low::Y;\nimpl Y {\n}", "impl crate::low::Y {\n}", "impl<'a> From<&'a str> for Y {\n}",
    "impl Drop for Y {\n}",
])
def test_methods_on_another_floor_are_seen(tmp_path, text):
    assert layers.strange_methods(planted(tmp_path, "", text)) == ["high has methods of Y"]
