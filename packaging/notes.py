"""Prints the newest release of CHANGELOG.md as the text of its tag.

    python3 packaging/notes.py | git tag -a vVERSION -F -
"""

import re
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def newest(changelog):
    """The section of the newest release without Markdown's links and headings, which git drops as comments."""
    section = re.search(r"^## (\d+\.\d+\.\d+) \((.+)\)\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    assert section, "the changelog has no release"
    version, date, text = section.groups()
    plain = re.sub(r"^#+ ", "", re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text), flags=re.M).strip()
    return f"Wirespeed {version}\n\nReleased {date}.\n\n{plain}\n"


if __name__ == "__main__":
    print(newest(CHANGELOG.read_text()), end="")
