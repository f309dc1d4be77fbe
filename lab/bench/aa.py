"""How often a stack that is compared with itself is called better or worse: reads an A/A run.

wirespeed run aa
python lab/bench/aa.py runs/latest
"""

import sys
from collections import Counter
from pathlib import Path

from wirespeed.results.statistics import median

from wirespeed.results import summary


def main(run_dir: Path) -> None:
    found = summary.load(run_dir)
    gains = found.gains
    print(f"{run_dir.resolve().name}: {len(gains)} comparisons of a stack with itself")
    for word, number in Counter(gain.verdict.word for gain in gains).most_common():
        print(f"  {word}: {number} ({number / len(gains):.0%})")
    sizes = sorted(abs(gain.of_medians) * 100 for gain in gains if gain.of_medians is not None)
    print(f"  difference of medians: median {median(sizes):.1f} %, largest {sizes[-1]:.1f} %")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/latest"))
