"""The files of a crate do not use each other in a circle."""

import pytest
import rust_modules
from components import ROOT

CRATES = sorted(path.parent for room in ("bypass", "load") for path in (ROOT / room).glob("*/src"))


@pytest.mark.parametrize("crate", CRATES, ids=lambda crate: f"{crate.parent.name}-{crate.name}")
def test_no_circle_of_files(crate):
    assert not rust_modules.circles(crate / "src")


@pytest.mark.parametrize("text", [
    "use crate::b;", "use crate::{c, b::Thing};", "use crate::{c::{self}, b::{self, X}};",
    "fn f() { crate::b::g() }", "use super::b::Thing as Other;", "pub(crate) use crate::b::*;",
])
def test_an_import_in_any_form_is_seen(tmp_path, text):
    (tmp_path / "lib.rs").write_text("pub mod a; pub mod b; pub mod c;")
    (tmp_path / "a.rs").write_text(text)
    (tmp_path / "b.rs").write_text("use crate::a::X;")
    (tmp_path / "c.rs").write_text("")
    assert rust_modules.circles(tmp_path) == [("a",), ("b",)]


@pytest.mark.parametrize("text", [
    "// use crate::b;", "/// See [`crate::b`].", 'const X: &str = "crate::b";',
    "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}",
])
def test_comments_strings_and_tests_are_not_code(tmp_path, text):
    (tmp_path / "lib.rs").write_text("pub mod a; pub mod b;")
    (tmp_path / "a.rs").write_text(text)
    (tmp_path / "b.rs").write_text("use crate::a::X;")
    assert not rust_modules.circles(tmp_path)


def test_a_circle_inside_a_folder_is_seen_and_its_own_file_is_not_one(tmp_path):
    (tmp_path / "lib.rs").write_text("mod a;")
    (tmp_path / "a.rs").write_text("mod b; mod c; pub use b::X;")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.rs").write_text("use super::c::Y; use super::Z;")
    (tmp_path / "a" / "c.rs").write_text("use crate::a::b::X;")
    assert rust_modules.circles(tmp_path) == [("a", "b"), ("a", "c")]
