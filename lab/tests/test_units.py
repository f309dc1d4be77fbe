"""Units: what is accepted, what is refused and how, and that text and number agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed import units
from wirespeed.errors import UnitError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("5m", 300),
        ("2h", 7200),
        ("1m30s", 90),
        ("1h30m", 5400),
        ("0", 0),
        (0, 0),
        ("250us", 250e-6),
    ],
)
def test_durations_are_seconds(text, seconds):
    assert units.duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10", "has no unit"),
        (10, "has no unit"),
        ("10 parsecs", "unknown unit 'parsecs'"),
        ("soon", "is not a duration"),
        ("-1s", "is not a duration"),
        (True, "is not a duration"),
        ("", "is not a duration"),
    ],
)
def test_a_bad_duration_says_what_is_wrong(text, message):
    with pytest.raises(UnitError, match=message):
        units.duration_s(text)


@pytest.mark.parametrize(
    ("text", "size"), [(512, 512), ("1KiB", 1024), ("1kB", 1000), ("512m", 2**29), ("0", 0)]
)
def test_sizes_are_bytes(text, size):
    assert units.size_bytes(text) == size


def test_half_a_byte_is_refused():
    with pytest.raises(UnitError, match="whole number of bytes"):
        units.size_bytes("0.3")


def test_counts_and_links():
    assert units.count("50M") == 50_000_000
    assert units.link_bits_per_second("25gbit") == 25e9


@pytest.mark.parametrize("read", [units.count, units.size_bytes, units.duration_s])
def test_hundreds_of_digits_are_too_large(read):
    with pytest.raises(UnitError, match="too large"):
        read("9" * 400 + ("s" if read is units.duration_s else ""))


@given(st.integers(min_value=0, max_value=10**9))
def test_a_duration_written_as_text_reads_back(ms):
    assert units.duration_s(units.duration_text(ms / 1000)) == pytest.approx(ms / 1000)


@given(st.floats(min_value=0, max_value=10**7))
def test_durations_for_people_have_no_sixty_seconds(seconds):
    text = units.duration_for_people(seconds)
    assert "60 s" not in text and "60 min" not in text
