"""The end of a run of `./test`: what failed, the slowest tests, and the line with the counts."""

#: Of the slowest tests of each step, so many are printed; build/test/slowest.txt has ten.
SLOWEST_SHOWN = 3


def slowest(results, count):
    """The slowest tests of each step, a line per test."""
    return "".join(f"{step.name:13} {seconds:6.1f} s  {name}\n"
                   for step, found, _ in results for seconds, name in found.slowest(count))


def text(results, seconds, cpu_s):
    """Everything that is printed after the steps; `results` has step, Results and what to quote."""
    parts = [f"\n── {step.name}: what failed, from build/test/{step.name}.txt\n{quote}"
             for step, _, quote in results if quote]
    parts.append("\nslowest tests (build/test/slowest.txt has ten of each step)\n"
                 f"{slowest(results, SLOWEST_SHOWN)}")
    passed = sum(found.passed for _, found, _ in results)
    failed = sum(found.failed for _, found, _ in results)
    skipped = sum(len(found.skips) for _, found, _ in results)
    parts.append(f"{seconds:.0f} s, {cpu_s:.0f} s of CPU")
    return "\n".join([*parts, f"{passed} passed, {failed} failed, {skipped} skipped"])
