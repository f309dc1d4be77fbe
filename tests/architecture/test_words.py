"""Clean places stay free of the habits that `words.py` finds, and the other places lose some over time."""

import tomllib

import pytest
import words


@pytest.fixture(scope="module")
def everything():
    return words.find()


@pytest.fixture(scope="module")
def found(everything, record_words):
    return record_words(words.without_allowed(everything))


def test_no_place_has_more_findings_than_are_left(found):
    assert not words.over_limit(found, words.limits())


def test_numbers_are_kept_for_places_that_exist():
    limits = words.limits()
    missing = [place for place in (*limits["clean"], *limits["left"]) if not (words.ROOT / place).exists()]
    assert not missing


def test_each_exception_is_needed_and_has_a_reason(everything):
    exceptions = words.allowed()
    assert len(exceptions) <= words.ALLOWED_MAX
    present = {(one.path, one.text) for one in everything}
    assert not [one for one in exceptions if (one["file"], one["text"]) not in present or not one["why"]]


@pytest.mark.parametrize(("name", "text"), [
    ("a.md", "It is no number.\n"),
    ("a.md", "Use it.\n\nWhoever connects is served.\n"),
    ("a.rs", "let x = 1; // done anew\n"),
    ("a.rs", '/*\n * It waits in vain.\n */\nconst A: char = \'"\';\n'),
    ("a.rs", 'fail("the port is\\n  beside it");\n'),
    ("a.rs", 'fail(r#"a "quoted" word beside it"#);\n'),
    ("A.java", 'String help = """\n    CPU a request\n    """;\n'),
    ("A.java", "void whatIsWrongIsToldOnce() {\n"),
    ("a.py", 'def f():\n    """What nobody took is taken.\n    """\n'),
    ("a.py", "def test_a_mistake_is_told_in_one_line():\n"),
    ("a.py", 'fail(f"{name} is no number")\n'),
    ("a.toml", 'name = "x"  # measured by turns\n'),
    ("script", "#!/bin/sh\n# runs side by side\n"),
])
def test_a_habit_is_found_in_every_kind_of_text(name, text):
    assert words.findings_in(name, text)


@pytest.mark.parametrize(("name", "text"), [
    ("a.md", "```console\n$ tell me\n```\nRun `tell`.\n"),
    ("a.rs", "let told = beside(anew);\n"),
    ("a.rs", 'match letter { \'"\' => beside(), \'\\\'\' => told() }\n'),
    ("a.rs", 'call("beside");\n'),
    ("a.py", "told = beside\n"),
    ("a.md", "There is no longer a limit.\n"),
    ("a.md", "There is no such interface.\n"),
    ("a.rs", 'start(&network, "nobody nogroup", 1);\n'),
    ("a.bin", "is no number\n"),
    ("a.py", 'fail(f"the rate is {told:.1f}")\n'),
    ("a.py", 'draw("<rect height=\'3\'/>")\n'),
])
def test_code_and_good_sentences_pass(name, text):
    assert not words.findings_in(name, text)


def test_a_finding_names_its_place_and_the_term_to_use():
    (one,) = words.findings_in("a.rs", '// fine\n// "first" \n// tried anew\n')
    assert str(one) == "a.rs:3: 'anew': use again"


def test_a_line_of_a_long_literal_has_its_own_number():
    (one,) = words.findings_in("a.rs", 'const HELP: &str = "fine\n  and fine\n  tried anew";\n')
    assert one.line == 3


FOUND = words.findings_in("load/cli/a.rs", "// anew, anew\n") + words.findings_in("docs/a.md", "anew\n")


def test_as_many_as_are_left_pass_and_one_more_fails():
    assert words.over_limit(FOUND, {"clean": [], "left": {"load": 2, "docs": 1}}) == []
    (line,) = words.over_limit(FOUND, {"clean": [], "left": {"load": 1, "docs": 1}})
    assert line.startswith("load: 2 findings, 1 are left")


def test_a_new_place_and_a_clean_place_have_none():
    assert len(words.over_limit(FOUND, {"clean": [], "left": {"load": 2}})) == 1
    lines = words.over_limit(FOUND, {"clean": ["load/cli"], "left": {"load": 9, "docs": 1}})
    assert [line.split(": ")[0] for line in lines] == ["load/cli/a.rs:1"] * 2


def test_numbers_are_only_lowered(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "LEFT", tmp_path / "left.toml")
    words.LEFT.write_text('clean = []\n\n[left]\n"load" = 9\ndocs = 0\nlab = 4\n')
    words.lower(FOUND)
    assert tomllib.loads(words.LEFT.read_text())["left"] == {"load": 2}
    words.LEFT.write_text("clean = []\n\n[left]\nload = 1\ndocs = 1\n")
    words.lower(FOUND)
    assert tomllib.loads(words.LEFT.read_text())["left"] == {"load": 1, "docs": 1}
