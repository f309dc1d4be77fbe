"""The table of rooms in ARCHITECTURE.md is what the code does, in all three languages."""

import pytest
import rooms


def all_edges():
    return {**rooms.rust_edges(), **rooms.java_edges(), **rooms.python_edges()}


def test_every_room_has_a_row_and_every_row_a_room():
    assert set(rooms.table()) == set(all_edges())


def test_no_room_uses_a_room_that_its_row_does_not_list():
    allowed = rooms.table()
    forbidden = [f"{room} uses {other}" for room, used in all_edges().items()
                 for other in used if other not in allowed.get(room, set())]
    assert not forbidden


def test_rooms_of_the_table_do_not_use_each_other_in_a_circle():
    allowed = rooms.table()

    def walk(room, path):
        assert room not in path, f"a circle: {' → '.join([*path, room])}"
        for other in allowed[room]:
            walk(other, [*path, room])

    for room in allowed:
        walk(room, [])


@pytest.mark.parametrize(("source", "found"), [
    ("import wirespeed.report.page", ["wirespeed.report.page"]),
    ("from wirespeed import report", ["wirespeed.report"]),
    ("from wirespeed.runner import plan", ["wirespeed.runner"]),
])
def test_an_import_in_any_form_is_seen(tmp_path, source, found):
    path = tmp_path / "planted.py"
    path.write_text(source)
    assert list(rooms.imports(path)) == found
