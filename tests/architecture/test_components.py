"""The table of components in ARCHITECTURE.md is what the code does, in all three languages."""

import components
import pytest


def all_edges():
    return {**components.rust_edges(), **components.java_edges(), **components.python_edges()}


def test_every_room_has_a_row_and_every_row_a_room():
    assert set(components.table()) == set(all_edges())


def test_no_room_uses_a_room_that_its_row_does_not_list():
    allowed = components.table()
    forbidden = [f"{component} uses {other}" for component, used in all_edges().items()
                 for other in used if other not in allowed.get(component, set())]
    assert not forbidden


def test_components_of_the_table_do_not_use_each_other_in_a_circle():
    allowed = components.table()

    def walk(component, path):
        assert component not in path, f"a circle: {' → '.join([*path, component])}"
        for other in allowed[component]:
            walk(other, [*path, component])

    for component in allowed:
        walk(component, [])


@pytest.mark.parametrize(("source", "found"), [
    ("import wirespeed.report.page", ["wirespeed.report.page"]),
    ("from wirespeed import report", ["wirespeed.report"]),
    ("from wirespeed.runner import plan", ["wirespeed.runner"]),
])
def test_an_import_in_any_form_is_seen(tmp_path, source, found):
    path = tmp_path / "planted.py"
    path.write_text(source)
    assert list(components.imports(path)) == found
