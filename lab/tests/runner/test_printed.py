"""Files of published results: next to the recipe or of the kit, refused when missing."""

from pathlib import Path

import pytest

from wirespeed.errors import InputError
from wirespeed.recipe.model import Recipe
from wirespeed.runner import printed

ROOT = Path(__file__).resolve().parents[3]


def recipe_with(file):
    process = {"argv": ["./app"], "pin": {}}
    return Recipe.model_validate(
        {
            "wirespeed": 2,
            "name": "mine",
            "axes": {"size": [1]},
            "process": [
                {"name": "app", "role": "server", **process},
                {"name": "gen", "role": "load", "tool": "load", **process},
            ],
            "metric": [{"name": "rps", "from": "gen"}],
            "table": [{"rows": "size", "value": "rps", "published": {"file": file}}],
        }
    )


@pytest.mark.parametrize("file", ["mine.csv", "zuul_ramp.csv"])
def test_a_run_keeps_a_copy(file, tmp_path):
    (tmp_path / "mine.csv").write_text("metric,value,unit\n")
    recipe, run_dir = recipe_with(file), tmp_path / "run"
    run_dir.mkdir()
    printed.check(recipe, tmp_path / "mine.toml", ROOT)
    printed.keep(recipe, tmp_path / "mine.toml", ROOT, run_dir)
    assert (run_dir / "published" / file).is_file()


@pytest.mark.parametrize("file", ["nowhere.csv", "../claims.csv", ""])
def test_a_file_that_is_nowhere_is_refused_with_the_table(file, tmp_path):
    with pytest.raises(InputError, match=r"mine.toml: table\[0\].published.file: .* not found"):
        printed.check(recipe_with(file), tmp_path / "mine.toml", ROOT)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("metric,value\nrps,1\n", "column 'unit' is missing"),
        ("metric,value,unit\nrps,fast,req/s\n", "line 2: value: 'fast' is not a number"),
        ("metric,value,unit\nrps\n", "line 2: value: None"),
        ("metric,value,unit,link_gbps\nrps,1,req/s,25G\n", "link_gbps: '25G'"),
    ],
)
def test_a_file_that_no_report_could_show_is_refused_before_the_run(text, line, tmp_path):
    """The run was measured, and its report ended in a traceback."""
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(InputError, match=r"published\.file: mine\.csv: ") as refused:
        printed.check(recipe_with("mine.csv"), tmp_path / "mine.toml", ROOT)
    assert line in str(refused.value)
