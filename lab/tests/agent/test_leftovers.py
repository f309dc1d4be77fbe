"""Tidying beside another run that tidies too."""

import shutil

from wirespeed.agent import leftovers


def test_a_folder_that_another_agent_removes_meanwhile_is_passed_over(tmp_path, monkeypatch):
    group = tmp_path / "wirespeed-7-abcd-1.2"
    (group / "app-0").mkdir(parents=True)
    other = tmp_path / "wirespeed-7-abcd-3.4"
    (other / "app-0").mkdir(parents=True)

    def gone(owner):
        if owner == "1.2":
            shutil.rmtree(group)
        return False

    monkeypatch.setattr(leftovers, "CGROUP_TREES", (str(tmp_path),))
    monkeypatch.setattr(leftovers, "is_at_work", gone)
    leftovers.remove_cgroups()
    assert not other.exists()
