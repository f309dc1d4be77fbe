"""How often a stack that is compared with itself is called better or worse: reads A/A runs.

wirespeed run aa            as often as you like
python lab/bench/aa.py runs/20261122T…-aa-…  runs/20261122T…-aa-…
"""

import sys
from collections import Counter
from pathlib import Path
from statistics import median

from wirespeed.results import summary


def main(run_dirs: list[Path]) -> None:
    words, sizes = Counter(), []
    for run_dir in run_dirs:
        found = summary.load(run_dir)
        by_metric: dict[str, Counter] = {}
        for gain in found.gains:
            by_metric.setdefault(gain.metric, Counter())[gain.verdict.word] += 1
            words[gain.verdict.word] += 1
            if gain.metric == found.primary and gain.found:
                sizes.append(abs(gain.found.gain) * 100)
        print(
            f"{run_dir.resolve().name}: noise floor {found.floors[found.primary] or 0:.1%}, "
            f"{len(found.disturbed)} of {len(found.valid)} trials disturbed"
        )
        for metric, counted in by_metric.items():
            print(f"  {metric}: " + ", ".join(f"{n} {word}" for word, n in counted.most_common()))
        for family in found.families:
            print(f"  pooled, {family.metric}: {family.verdict.word}")
    total = words.total()
    false = words["gain"] + words["loss"]
    print(
        f"{total} comparisons of a stack with itself: {false} false verdicts ({false / total:.1%})"
    )
    print(f"gains in the first metric: median {median(sizes):.1f} %, largest {max(sizes):.1f} %")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [Path("runs/latest")])
