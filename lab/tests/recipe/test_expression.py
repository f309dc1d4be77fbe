"""The placeholder language: what it supports, and that it supports nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.recipe.expression import ExpressionError, Names, arguments_of, value_of

VALUES = {
    ("payload",): 128,
    ("count",): 3,
    ("i",): 1,
    ("stack",): "kernel",
    ("test", "close"): True,
    ("test", "open"): None,
    ("jvm",): ["-Xms2g", "{heap}"],
    ("heap",): "-Xmx{payload}m",
    ("circle",): "{circle}",
    ("and-more",): "a name that begins like a word of the language",
    ("http", 1, "port"): 8082,
}


def lookup(path):
    if path not in VALUES:
        raise ExpressionError(f"no {path}")
    return VALUES[path]


NAMES = Names(lookup, lambda kind, name: f"<{kind} {name}>")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("{payload}", 128),
        ("{payload} bytes", "128 bytes"),
        ("{{literal}}", "{literal}"),
        ("{payload / count}", 42),
        ("{payload * 2 + 1}", 257),
        ("{2 + 3 * (4 - 1)}", 11),
        ("{-i + 1}", 0),
        ("{payload % 10}", 8),
        ("{7.0 / 2}", 3.5),
        ("http://x:{http[i].port}/{payload}", "http://x:8082/128"),
        ("192.168.0.{100 + i}/24", "192.168.0.101/24"),
        ("{asset:http-server}", "<asset http-server>"),
        ("{template:nginx.conf}", "<template nginx.conf>"),
        ("{heap}", "-Xmx128m"),
        ("{test.close ? Connection: close}", "Connection: close"),
        ("{test.open ? yes : no}", "no"),
        ("{payload >= 128 and count > 2 ? 2 : 1}", "2"),
        ("{payload >= 129 or count <= 2 ? 2 : 1}", "1"),
        ("{not test.open and not (count == 4) ? 2 : 1}", "2"),
        ("{count * 2 != 6 ? 2 : 1}", "1"),
        ("{payload / 2 < payload - 1 ? {payload} : no}", 128),
        ("{and-more}", "a name that begins like a word of the language"),
    ],
)
def test_values(text, value):
    assert value_of(text, NAMES) == value


def test_lists_are_spliced_and_nothing_is_left_out():
    argv = ["java", "{jvm}", "{test.open ? -H}", "{test.close ? -k}", "{payload}"]
    assert arguments_of(argv, NAMES) == ["java", "-Xms2g", "-Xmx128m", "-k", "128"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "without"),
        ("}", "without"),
        ("{}", "a name or a number is missing"),
        ("{payload +}", "a name or a number is missing"),
        ("{(payload}", r"'\)' is missing"),
        ("{http[1.port}", "'] is missing|']' is missing"),
        ("{payload payload}", "unexpected"),
        ("{payload; import os}", "unexpected character"),
        ("{payload = 1}", "unexpected character"),
        ("{payload > stack}", "is not a number"),
        ("{payload > 1 > 0}", "unexpected '>'"),
        ("{payload and}", "a name or a number is missing"),
        ("{payload and nothing}", "no .*nothing"),
        ("{open('x')}", "no .*open"),
        ("{circle}", "refers to itself"),
        ("text {jvm}", "must be an argument of its own"),
        ("{stack + 1}", "is not a number"),
        ("{payload / 0}", "division by zero"),
    ],
)
def test_what_it_cannot_say_is_an_error(text, problem):
    with pytest.raises(ExpressionError, match=problem):
        value_of(text, NAMES)


@given(st.text(max_size=40))
def test_any_text_is_a_value_or_an_expression_error(text):
    try:
        value_of(text, NAMES)
    except ExpressionError:
        pass


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(0, 99))
def test_arithmetic_is_that_of_whole_numbers(a, b, c):
    assert value_of(f"{{{a} / {b} + {c} * 2}}", NAMES) == a // b + c * 2
