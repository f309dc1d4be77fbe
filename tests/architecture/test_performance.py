"""The pages of docs/performance are what bench/pages.py makes of the recorded results."""

import subprocess
import sys

from components import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import pages


def test_the_pages_are_made_from_the_results():
    done = subprocess.run([sys.executable, ROOT / "bench" / "pages.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_kept_result_is_shown_and_names_its_source():
    shown = {section["result"] for page in pages.described() for section in page["section"]}
    for path in pages.RESULTS.glob("*/*.txt"):
        assert path.stem in shown, f"{path.relative_to(ROOT)} is in no page of bench/pages.toml"
        facts, output = pages.read(path)
        assert set(facts) == {"command", "machine", "date", "commit", "seconds"} and output.strip()
