"""The template language: what it gives, and which line its mistakes are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed import template
from wirespeed.template import OMITTED, BadTemplateError, Later, arguments_of, named, value_of


def port(number):
    return named(f"http[{number}]", {"port": 8081 + number})


NAMES = {
    "payload": 128,
    "count": 3,
    "i": 1,
    "close": True,
    "stack": named("stack", {"client": "wrk", "upper": "a part"}, "kernel"),
    "test": named("test", {"close": True, "open": None}, "tps"),
    "gzip": named("gzip", {"level": 3}, False),
    "server": named("server", {"addr": "10.0.0.1"}),
    "http": named("http", {"port": 8081}, None, port),
    "jvm": lambda name: ["-Xms2g", f"-D{name}"],
}
NAMES["heap"] = Later(lambda: value_of("-Xmx{{ payload }}m", NAMES))
NAMES["circle"] = Later(lambda: value_of("{{ circle }}", NAMES))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ('{"json": 1}', '{"json": 1}'),
        ("{{ payload }}", 128),
        ("{{ payload }} bytes", "128 bytes"),
        ("{{ payload // count }}", 42),
        ("{{ payload / 64 }}", 2.0),
        ("{{ [payload, 100]|min }}", 100),
        ("http://x:{{ http[i].port }}/{{ http.port }}", "http://x:8082/8081"),
        ("{{ stack }}", "kernel"),
        ("{{ stack == 'kernel' }}", True),
        ("{{ stack.client }}", "wrk"),
        ("{{ stack.upper }}", "a part"),
        ("{{ stack.title() }}", "Kernel"),
        ("{{ gzip }}", False),
        ("{{ gzip }} {{ close }}", "false true"),
        ("{{ heap }}", "-Xmx128m"),
        ("{{ '-k' if test.close }}", "-k"),
        ("{{ '-k' if test.open }}", OMITTED),
        ("a{{ '-k' if test.open }}b", "ab"),
        ("{{ test.open }}", OMITTED),
        ("{{ jvm('x') }}", ["-Xms2g", "-Dx"]),
        ("{% for n in range(3) %}{{ n }}{% endfor %}", "012"),
        ("{{ 'x=' ~ close|text ~ (4.0 / 2)|text }}", "x=true2"),
        ("{{ i * 2.5 }}", 2.5),
    ],
)
def test_values(text, value):
    found = value_of(text, NAMES)
    assert found == value and type(found) is type(value)


def test_lists_are_spliced_and_arguments_without_a_value_are_left_out():
    argv = ["java", "{{ jvm('x') }}", "{{ '-H' if test.open }}", "{{ payload }}", "{{ close }}"]
    assert arguments_of(argv, NAMES) == ["java", "-Xms2g", "-Dx", "128", "true"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ payload", "{{ payload: '}}' is missing"),
        ("{{ payload; rm }}", "unexpected text after the expression"),
        ("{{ payloda }}", "{{ payloda }}: unknown name 'payloda' (did you mean 'payload'?)"),
        ("x {{ payloda }}", "unknown name 'payloda' (did you mean 'payload'?)"),
        ("{{ open('x') }}", "unknown name 'open' (known: circle, close, count, "),
        ("{{ server }}", "'server' has no value of its own (its parts: addr)"),
        ("x{{ server }}", "'server' has no value of its own (its parts: addr)"),
        ("{{ server.adr }}", "unknown name 'server.adr' (its parts: addr)"),
        ("{{ circle }}", "refers to itself"),
        ("text {{ jvm('x') }}", "a list within a text (it must be an argument of its own)"),
        ("{{ {'a': 1} }}", "a dict (must be a text, a number or a list)"),
        ("{{ jvm }}", "a function (must be a text, a number or a list)"),
        ("{{ payload / 0 }}", "division by zero"),
        ("{{ payload > 'a' }}", "not supported"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ server._parts }}", "unknown name"),
        ("{% set x = payload %}{{ x.__class__ }}", "unsafe"),
        ("{{ 'x=' ~ server|text }}", "'server' has no value of its own"),
        ("{{ 'x' * 1000000000000 }}", "'*' is for numbers only"),
        ("{{ [1] * payload }}", "'*' is for numbers only"),
        ("{{ 10 ** 10 ** 9 }}", "'**' is not supported"),
        ("{{ 'x'|center(1000000000000) }}", "too large or too deeply nested"),
        ("{{ " + "(" * 400 + "1" + ")" * 400 + " }}", "too large or too deeply nested"),
        ("{% for x in [1] %}" * 25 + "{% endfor %}" * 25, "cannot be computed: too many"),
        ("{{ 1e400|int }}", "cannot be computed"),
    ],
)
def test_a_mistake_is_one_line(text, problem):
    with pytest.raises(BadTemplateError) as caught:
        value_of(text, NAMES)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_mistake_in_a_variable_names_its_own_text():
    names = {"heap": Later(lambda: value_of("-Xmx{{ paylaod }}m", {"payload": 1}))}
    with pytest.raises(BadTemplateError, match=r"^-Xmx\{\{ paylaod \}\}m: unknown name"):
        value_of("a {{ heap }}", names)


@given(st.text(max_size=40) | st.text("{}%#' ax.[]()|", max_size=20))
def test_any_text_is_a_value_or_a_bad_template(text):
    try:
        value_of(text, NAMES)
    except BadTemplateError:
        pass


@given(st.text(max_size=20) | st.text("{}%# ap\r\n", max_size=12), st.sampled_from(["", "{{ i }}"]))
def test_a_literal_text_is_itself(text, after):
    filled = value_of(template.literal(text) + after, NAMES)
    assert str(filled) == text + ("1" if after else "")


@pytest.mark.parametrize("text", ["{{ 'x'|center(1000000000000) }}", "a{{ 1 // 0 }}"])
def test_a_check_computes_nothing(text):
    """A constant was computed while another one's recipe was read, before the question of trust."""
    template.check(text)


def test_a_template_of_a_file_may_change_its_own_lists():
    text = "{% set _ = ports.append(9) %}{{ ports|join(' ') }}"
    assert template.file_of(text, {"ports": [8]}) == "8 9"


@pytest.mark.parametrize(
    "title",
    [
        "plain", "{{ payload }} B", "{{ axes['my-axis'] }}", "{{ '{:,}'.format(payload) }}",
        "{{ 8 * payload // 1024 + 1 }} Kib", "{{ server|upper if close else 'x' ~ i|text }}",
    ],
)  # fmt: skip
def test_a_title_has_names_and_sums(title):
    assert template.names_of_title(title) <= {"payload", "axes", "server", "close", "i"}


@pytest.mark.parametrize(
    "title",
    [
        "{% for n in range(99999) %}x{% endfor %}", "{{ payload|center(9) }}",
        "{{ '{:1000000000}'.format(i) }}", "{{ '{:{}}'.format(i, i) }}", "{{ server.center(9) }}",
        "{{ range(9) }}", "{{ '%9d' % i }}", "{{ payload", "{{ 5.format(i) }}",
    ],
)  # fmt: skip
def test_a_title_has_nothing_that_repeats_or_widens_a_text(title):
    with pytest.raises(BadTemplateError):
        template.names_of_title(title)
