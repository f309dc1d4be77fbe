"""Maps of gains."""

from __future__ import annotations

from report.make_run import KINDS, make_run

from wirespeed.analysis.summary import load
from wirespeed.report import heat


def test_a_map_has_a_tile_for_each_comparison(tmp_path):
    summary = load(make_run(KINDS["netty"](), tmp_path))
    (found,) = heat.maps(summary)
    assert found.columns == ("1", "4")
    assert [label for label, _ in found.rows] == ["16", "128", "256", "512"]
    tiles = [tile for _, tiles in found.rows for tile in tiles]
    assert len(tiles) == len(summary.gains) == 8
    assert all(tile.kind == "good" and tile.text.startswith("+") for tile in tiles)


def test_cells_without_a_verdict_have_no_colour_of_gain(tmp_path):
    summary = load(make_run(KINDS["nginx"](), tmp_path))
    tiles = [t for found in heat.maps(summary) for _, tiles in found.rows for t in tiles]
    assert tiles
    assert {tile.kind for tile in tiles} == {"none"}
    assert all(tile.text.endswith("?") for tile in tiles)


def test_a_single_table_needs_no_map(tmp_path):
    assert heat.maps(load(make_run(KINDS["zuul"](), tmp_path))) == []
