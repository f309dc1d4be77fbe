"""Durations, sizes, counts and link speeds: text with a unit to numbers, and back for people."""

from __future__ import annotations

import math
import re

from wirespeed.errors import UnitError

_DURATION_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE_BYTES = {
    "": 1, "B": 1,
    "k": 1024, "m": 1024**2, "g": 1024**3,  # as mount and the JVM write them
    "K": 1024, "M": 1024**2, "G": 1024**3,
    "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3,
}  # fmt: skip
_COUNT = {"": 1, "k": 1000, "K": 1000, "M": 1000**2, "G": 1000**3}
_LINK_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
#: Units of a metric that counts bytes → the factor from bytes per second.
BYTE_RATES = {
    "": 1.0, "B/s": 1.0, "kB/s": 1e-3, "MB/s": 1e-6, "GB/s": 1e-9, "Mb/s": 8e-6, "Gb/s": 8e-9,
}  # fmt: skip
_DURATION = re.compile(r"(\d+h)?(\d+m)?(\d+(?:\.\d+)?s)?")  # 1h30m, 1m30s
_DURATION_PARTS = re.compile(r"\d+(?:\.\d+)?[hms]")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)")


def grouped(text: str) -> float:
    """`1,234.5` as people and tools print numbers; a comma anywhere but before three digits is a
    decimal one in half of the world, so such a text is refused."""
    plain = text.strip()
    if "," in plain and not _GROUPED.fullmatch(plain):
        raise UnitError(f"{text!r} is not a number (a comma groups three digits: 1,234.5)")
    try:
        return float(plain.replace(",", ""))
    except ValueError:
        raise UnitError(f"{text!r} is not a number") from None


def _split(value: str | int | float, what: str, example: str) -> tuple[float, str]:
    text = str(value).strip()
    match = _NUMBER.fullmatch(text)
    if isinstance(value, bool) or not match:
        raise UnitError(f"{text!r} is not a {what} (for example {example})")
    number = float(match[1])
    if not math.isfinite(number):  # hundreds of digits
        raise UnitError(f"{text[:20]!r}… is too large for a {what}")
    return number, match[2]


def _scaled(value: str | int | float, table: dict[str, float], what: str, example: str) -> float:
    number, unit = _split(value, what, example)
    if unit not in table:
        units = ", ".join(name for name in table if name)
        problem = f"has the unknown unit {unit!r}" if unit else "has no unit"
        raise UnitError(f"{str(value)!r} {problem} (units: {units})")
    return number * table[unit]


def duration_s(value: str | int | float) -> float:
    """`"500ms"`, `"1.5s"`, `"1m30s"` or a plain `0` as seconds."""
    if value in (0, "0"):
        return 0.0
    parts = _DURATION_PARTS.findall(str(value)) if _DURATION.fullmatch(str(value).strip()) else []
    if len(parts) > 1:
        return sum(duration_s(part) for part in parts)
    return _scaled(value, _DURATION_S, "duration", "500ms, 30s or 5m")


def size_bytes(value: str | int) -> int:
    """`"1KiB"`, `"512m"` or a plain number of bytes."""
    scaled = _scaled(value, dict(_SIZE_BYTES), "size", "512, 64KiB or 10MB")
    if scaled != int(scaled):
        raise UnitError(f"{str(value)!r} is not a whole number of bytes")
    return int(scaled)


def count(value: str | int) -> int:
    """`"50M"` or `1000` as a whole number."""
    scaled = _scaled(value, dict(_COUNT), "count", "1000, 50k or 2M")
    if scaled != int(scaled):
        raise UnitError(f"{str(value)!r} is not a whole number")
    return int(scaled)


def link_bits_per_second(value: str | int) -> float:
    """`"25gbit"` as bits a second."""
    return _scaled(value, _LINK_BITS, "link rate", "25gbit")


def speed_bps(value: str) -> float | None:
    """`"25G"`, the speed of a network card, as bits a second; None when it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)G", value)
    return float(match[1]) * 1e9 if match else None


def duration_text(seconds: float) -> str:
    """A duration as wrk and the load generator read it: the largest unit that is exact."""
    if not math.isfinite(seconds) or seconds < 0:
        raise UnitError(f"{seconds!r} is not a duration")
    ms = round(seconds * 1000)
    if ms and ms % 1000:
        return f"{ms}ms"
    return f"{ms // 1000}s"


def duration_for_people(seconds: float) -> str:
    """`95` as `1 min 35 s`: what plans and progress lines print."""
    whole = round(max(seconds, 0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60} min"
