"""The output of doctor: each missing ability names the command that fixes it."""

from wirespeed.runner import abilities


def test_everything_that_does_not_work_has_a_remedy(tmp_path):
    found = abilities.of_machine(tmp_path)
    assert {one.state for one in found} <= {"can", "cannot", "limited"}
    assert all(one.remedy for one in found if one.state != "can")
    assert not any(one.remedy for one in found if one.state == "can")


def test_a_checkout_without_products_says_how_to_build_them(tmp_path, monkeypatch):
    monkeypatch.setattr(abilities, "_which", lambda name: f"/usr/bin/{name}")
    remedies = {one.found: one.remedy for one in abilities.of_machine(tmp_path)}
    assert remedies["load is not built yet"] == "./wirespeed build load"
    (tmp_path / "target" / "release").mkdir(parents=True)
    (tmp_path / "target" / "release" / "wirespeed-load").touch()
    assert "load is built" in {one.found for one in abilities.of_machine(tmp_path)}


def test_without_a_toolchain_it_names_the_toolchain(tmp_path, monkeypatch):
    monkeypatch.setattr(abilities, "_which", lambda name: None)
    found = [one for one in abilities.of_machine(tmp_path) if one.state == "cannot"]
    assert any("no cargo" in one.found and "rustup" in one.remedy for one in found)
    assert any(one.found == "no java" for one in found)
