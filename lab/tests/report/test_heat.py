"""Maps of gains."""

from __future__ import annotations

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis.summary import load
from wirespeed.report import heat, plot

CONTRAST_LEAST = 4.5  # WCAG 2.1, 1.4.3 (AA)


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


@pytest.mark.parametrize("palette", [plot.LIGHT, plot.DARK], ids=["light", "dark"])
@pytest.mark.parametrize("kind", ["good", "bad"])
@pytest.mark.parametrize("ground", ["paper", "panel"])
def test_text_on_the_fullest_colour_can_be_read(palette, kind, ground):
    """Gains from +50 % on had a contrast of 4.0 on a dark page."""
    colours = dict(part.removeprefix("--").split(":") for part in palette.split(";"))
    ink, colour, under = (_rgb(colours[name]) for name in ("ink", kind, ground))
    share = heat.SHADE_MOST / 100
    shade = [one * share + other * (1 - share) for one, other in zip(colour, under, strict=True)]
    darker, lighter = sorted((_luminance(ink), _luminance(shade)))
    assert (lighter + 0.05) / (darker + 0.05) >= CONTRAST_LEAST


def _rgb(text: str) -> list[float]:
    digits = text.removeprefix("#")
    digits = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    return [int(digits[start : start + 2], 16) for start in (0, 2, 4)]


def _luminance(colour: list[float]) -> float:
    """Relative luminance as WCAG defines it."""
    shares = [value / 255 for value in colour]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(w * one for w, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
