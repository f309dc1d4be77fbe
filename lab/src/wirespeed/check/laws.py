"""The laws: each takes all cases of a table and yields contradictions, or explanations of a result.

Sources: Little's law (J. D. C. Little, 1961); Ethernet's frame overhead (IEEE 802.3) with TCP over
IPv4 and an MTU of 1500; a server's speed-up by n workers is at most n.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from wirespeed.check.table import (
    CONNECTIONS,
    DEPTH,
    IMPLEMENTATION,
    LINK,
    PAYLOAD,
    WORKERS,
    Case,
    Keys,
    described,
)

LITTLE_MAX = 0.05  # of N; what honest closed loops keep is below 1 %
LINK_FULL = 0.97  # of the link, from here on it is the limit
LINK_IMPOSSIBLE = 1.02  # of the link; heads and options that we do not know explain less
HEAD_BYTES = 250  # of a usual response; a table seldom says
SCALING_MAX = 1.05  # speed-up a worker
SAME_TEST = 1.10  # between two links, neither of them near its limit
LINK_NEAR = 0.9  # of the link
BYTES_SPREAD = 0.15  # of the median of all cases
SEVERAL_OPEN = 1.9  # times the connections
TAILS = ("p99", "p99.9")  # that no mean is equal to
TAIL_JUMP = 100  # between two neighbouring percentiles
GAIN_POINTS = 0.6  # percentage points that rounding explains

FRAME_BYTES = 38 + 20 + 20  # Ethernet with preamble, check and gap; IPv4; TCP without options
MSS = 1460
#: How "Gb/s" is read: what a unit of 10^9 bit/s is multiplied by.
READINGS = {
    "decimal units": 1.0,
    "2^20 bytes times 8, as wrk's MB divided by 1000": 1.048576,
    "2^30 bits": 1.073741824,
}


@dataclass(frozen=True)
class Finding:
    """One thing that a law says of a case: `broken` when the figures contradict each other."""

    law: str
    where: str
    says: str
    broken: bool = True


def check(cases: list[Case]) -> list[Finding]:
    """Everything that the laws find in a table, law by law."""
    scale = throughput_scale(joined(cases))
    findings = [finding for law in LAWS for finding in law(cases)]
    return findings + list(link(cases, scale)) + list(baselines(cases, scale))


def can_apply(cases: list[Case]) -> bool:
    """Whether any law has what it needs: of other tables "nothing found" says nothing."""
    return bool(joined(cases)) or any(map(_has_figures_of_a_law, cases))


def _has_figures_of_a_law(case: Case) -> bool:
    names = set(case.metrics)
    latencies = {name for name in names if name == "latency_mean" or name[0] == "p"}
    has_rate = "rate" in names
    return (
        len(latencies) > 1
        or "gain_printed" in names
        or (has_rate and "latency_mean" in names and bool(case.number(CONNECTIONS)))
        or (has_rate and case.number(WORKERS) is not None)
        or (bool(names & {"rate", "throughput"}) and case.number(LINK) is not None)
    )


def joined(cases: list[Case]) -> list[Case]:
    """Cases with a throughput, and with the rate that another table gives for the same case."""
    rates = {case.without(()): case for case in cases if "rate" in case.metrics}
    out = []
    for case in cases:
        other = rates.get(case.without(()))
        if "throughput" in case.metrics and other is not None:
            tables = ", ".join(dict.fromkeys((other.table, case.table)))
            rate = {"rate": other.metrics["rate"]}
            out.append(Case(case.keys, tables, case.line, rate | case.metrics))
    return out


def little(cases: list[Case]) -> Iterator[Finding]:
    """Closed loop: connections × requests that each has open = rate × mean latency."""
    for case in cases:
        connections, depth = case.number(CONNECTIONS), case.number(DEPTH) or 1.0
        rate, mean = case.metrics.get("rate"), case.metrics.get("latency_mean")
        if not connections or not rate or not mean:
            continue
        open_ = connections * depth
        ratio = rate * mean / open_
        if abs(ratio - 1) > LITTLE_MAX:
            what = "connections" if depth == 1 else "open requests"
            yield Finding(
                "Little's law", str(case),
                f"rate × mean latency = {rate * mean:,.0f} {what}, {ratio:.3g} × the "
                f"{open_:,.0f} that there were; at this rate the mean is "
                f"{open_ / rate * 1e3:,.2f} ms, not {mean * 1e3:,.2f} ms{_why(case, ratio)}",
            )  # fmt: skip


def _why(case: Case, ratio: float) -> str:
    """The usual cause of a violation in this direction, with the figures that support it."""
    if ratio >= SEVERAL_OPEN and case.number(DEPTH) in (None, 1.0):
        return (
            f" (about {ratio:,.0f} requests open on each connection, as streams or pipelining make "
            "them; or latencies corrected for a schedule)"
        )
    if ratio > 1:
        return " (latencies corrected for a schedule, or of another window than the rate)"
    connections = case.number(CONNECTIONS) or 0.0
    reconnects = case.metrics.get("reconnects", 0.0)
    if reconnects >= connections and (case.number(DEPTH) or 1.0) > 1:
        return f" (the server closed connections, {reconnects:,.0f} times, with requests open)"
    if reconnects >= connections:
        lost_s = (1 - ratio) * connections * case.metrics.get("duration", 0.0)
        each = f", {lost_s / reconnects * 1e3:,.2f} ms each" if lost_s else ""
        return f" (the rest fits {reconnects:,.0f} reconnects{each}, which no latency contains)"
    return " (connections that were not open all the time, or requests that the mean leaves out)"


def percentiles(cases: list[Case]) -> Iterator[Finding]:
    """Percentiles rise, and seldom by a factor of hundred from one to the next."""
    for case in cases:
        names = (name for name in case.metrics if name[0] == "p" and name[1:2].isdigit())
        ordered = sorted((float(name[1:]), name) for name in names)
        for (_, low), (_, high) in pairwise(ordered):
            before, after = case.metrics[low], case.metrics[high]
            said = f"{low} is {before * 1e3:,.2f} ms and {high} is {after * 1e3:,.2f} ms"
            if after < before:
                yield Finding("percentiles", str(case), f"{said}: a higher percentile is lower")
            elif before and after / before > TAIL_JUMP:
                yield Finding(
                    "percentiles", str(case),
                    f"{said}, {after / before:,.0f} × as long: a stall, or a unit mistaken",
                )  # fmt: skip


def same_column(cases: list[Case]) -> Iterator[Finding]:
    """A mean is below its 99th percentile unless all latencies are the same."""
    for name in TAILS:
        alike: dict[str, list[Case]] = defaultdict(list)
        for case in cases:
            mean = case.metrics.get("latency_mean")
            if mean and case.metrics.get(name) == mean:
                alike[case.table].append(case)
        for found in alike.values():
            cases_text = f"in {len(found):,} cases" if len(found) > 1 else "in this case"
            yield Finding(
                "percentiles", str(found[0]),
                f"mean and {name} are the same {cases_text}, here "
                f"{found[0].metrics[name] * 1e3:,.2f} ms: one column holds the other's figure",
            )  # fmt: skip


def _bytes_a_request(case: Case, scale: float = 1.0) -> float | None:
    rate, throughput = case.metrics.get("rate"), case.metrics.get("throughput")
    return throughput * scale / 8 / rate if rate and throughput else None


def throughput_scale(cases: list[Case]) -> float:
    """The factor of the throughput with which responses are as long as their payload."""
    fits = [scale for scale in READINGS.values() if not _misfits(cases, scale)]
    return fits[0] if fits else 1.0


def _misfits(cases: list[Case], scale: float) -> list[tuple[Case, float]]:
    """Cases whose bytes per request do not fit the payload with a head of up to 2 KB and 1 %."""
    out = []
    for case in cases:
        size, payload = _bytes_a_request(case, scale), case.number(PAYLOAD)
        if size and payload and not payload <= size <= payload * 1.01 + 2048:
            out.append((case, size))
    return out


def units(cases: list[Case]) -> Iterator[Finding]:
    """Throughput ÷ rate is a response: not shorter than its payload, not much longer."""
    cases = joined(cases)
    misfits = _misfits(cases, 1.0)
    if not misfits:
        return
    case, _ = misfits[0]
    sizes = [size for _, size in misfits]
    payload = case.number(PAYLOAD)
    says = (
        f"throughput ÷ rate gives {min(sizes):,.0f} to {max(sizes):,.0f} bytes per response in "
        f"{len(misfits)} cases, and the payload is {payload:,.0f}: the unit is not what it says"
    )
    scale = throughput_scale(cases)
    if scale != 1.0:
        reading = next(name for name, value in READINGS.items() if value == scale)
        says += f"; it fits when read as {reading} (multiply by {scale:.6g})"
    yield Finding("bytes per request", str(case), says)


def bytes_spread(cases: list[Case]) -> Iterator[Finding]:
    """The same response has the same length in every case, of one implementation."""
    alike: dict[object, list[tuple[Case, float]]] = defaultdict(list)
    for case in joined(cases):
        if size := _bytes_a_request(case):
            named = [case.keys.get(name) for name in (*IMPLEMENTATION, "profile")]
            alike[case.number(PAYLOAD), *named].append((case, size))
    for group in alike.values():
        middle = median(size for _, size in group)
        for case, size in group:
            if len(group) > 2 and abs(size / middle - 1) > BYTES_SPREAD:
                yield Finding(
                    "bytes per request", str(case),
                    f"{size:,.0f} bytes per request, {middle:,.0f} in the others: rate and "
                    "throughput are not of the same window",
                )  # fmt: skip


def scaling(cases: list[Case]) -> Iterator[Finding]:
    """n times the workers bring at most n times the rate."""
    for name in WORKERS:
        series: dict[object, list[tuple[float, Case]]] = defaultdict(list)
        for case in cases:
            number = case.number([name])
            if number and case.metrics.get("rate"):
                series[case.table, case.without([name])].append((number, case))
        for points in series.values():
            yield from _superlinear(name, sorted(points, key=lambda point: point[0]))


def _superlinear(name: str, points: list[tuple[float, Case]]) -> Iterator[Finding]:
    for (few, first), (many, case) in pairwise(points):
        speedup = case.metrics["rate"] / first.metrics["rate"]
        if many > few and speedup > many / few * SCALING_MAX:
            yield Finding(
                "scaling", str(case),
                f"{speedup:.2f} × the rate with {many / few:.3g} × the {name}: the figure with "
                f"{few:g} is too low to be a baseline",
            )  # fmt: skip


def link_share(case: Case, scale: float) -> float | None:
    """How much of its link a case fills: frames of 1538 bytes with 1460 of payload."""
    gbps = case.number(LINK)
    if not gbps:
        return None
    shares = []
    if throughput := case.metrics.get("throughput"):
        shares.append(throughput * scale * (MSS + FRAME_BYTES) / MSS)
    payload, rate = case.number(PAYLOAD), case.metrics.get("rate")
    if payload is not None and rate:
        length = payload + HEAD_BYTES
        shares.append(rate * (length + -(-length // MSS) * FRAME_BYTES) * 8)
    return max(shares) / (gbps * 1e9) if shares else None


def link(cases: list[Case], scale: float) -> Iterator[Finding]:
    """A full link is the limit, whatever server or stack is in front of it."""
    series: dict[tuple[str, Keys], list[tuple[str, float]]] = defaultdict(list)
    for case in cases:
        share = link_share(case, scale)
        if share and share > LINK_FULL:
            counts = [case.keys[name] for name in WORKERS if case.keys.get(name)]
            series[case.table, case.without(WORKERS)].append((" × ".join(counts), share))
    for (table, keys), full in series.items():
        low, high = min(share for _, share in full), max(share for _, share in full)
        at = f"with {', '.join(count for count, _ in full)} instances " if full[0][0] else ""
        yield Finding(
            "link", described(table, keys),
            f"{at}{low * 100:.1f} to {high * 100:.1f} % of the link is filled: the link is the "
            "limit, no server or stack can gain there",
            broken=high > LINK_IMPOSSIBLE,
        )  # fmt: skip


def baselines(cases: list[Case], scale: float) -> Iterator[Finding]:
    """The same test over two links that are not full gives the same rate."""
    pairs: dict[object, list[Case]] = defaultdict(list)
    for case in cases:
        share = link_share(case, scale)
        if case.metrics.get("rate") and share and share < LINK_NEAR:
            pairs[case.rate_name, case.without(LINK)].append(case)
    for same in pairs.values():
        slow = min(same, key=lambda case: case.metrics["rate"])
        fast = max(same, key=lambda case: case.metrics["rate"])
        ratio = fast.metrics["rate"] / slow.metrics["rate"]
        if ratio > SAME_TEST:
            yield Finding(
                "baseline", str(slow),
                f"the same test over the link of {fast.number(LINK):g} Gb/s is {ratio:.2f} × as "
                "fast, and neither link is near its limit: one of the two figures is wrong",
            )  # fmt: skip


def gains(cases: list[Case]) -> Iterator[Finding]:
    """A printed gain follows from the printed figures; the baseline is the stack `kernel`."""
    base = {_beside(case): case for case in cases if case.keys.get("stack") == "kernel"}
    for case in cases:
        first, printed = base.get(_beside(case)), case.metrics.get("gain_printed")
        metric = "rate" if "rate" in case.metrics else "throughput"
        if first is None or printed is None or not first.metrics.get(metric):
            continue
        true = (case.metrics[metric] / first.metrics[metric] - 1) * 100
        if abs(true - printed) > GAIN_POINTS:
            yield Finding(
                "gain", str(case), f"printed {printed:g} %, the figures give {true:.2f} %"
            )


def _beside(case: Case) -> object:
    """What a case shares with the one of another stack in its table."""
    return case.table, case.without(["stack"])


LAWS: tuple[Callable[[list[Case]], Iterator[Finding]], ...] = (
    little, percentiles, same_column, units, bytes_spread, scaling, gains,
)  # fmt: skip
