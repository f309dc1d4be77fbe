"""Numbers on the command line: each option refuses what does not fit in the same words."""

import pytest
from typer.main import get_command

from wirespeed.cli.app import app
from wirespeed.cli.options import whole_number
from wirespeed.errors import InputError


def commands(group):
    for command in group.commands.values():
        yield from commands(command) if hasattr(command, "commands") else [command]


def test_no_option_leaves_its_number_to_the_library():
    """Its messages are "Input should be a valid integer, unable to parse string as an integer"."""
    kinds = [
        (f"{command.name} {parameter.name}", parameter.type_descriptor)
        for command in commands(get_command(app))
        for parameter in command.params
    ]
    numbers = {name: kind for name, kind in kinds if kind.annotation in (int, float)}
    assert {"run repeat", "knee repeat", "init port", "runs keep"} <= numbers.keys()
    assert not {name for name, kind in numbers.items() if kind.parameter_info.parser is None}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("many", "--repeat: 'many' is not a whole number (1 to 9)"),
        ("1.5", "--repeat: '1.5' is not a whole number (1 to 9)"),
        ("", "--repeat: '' is not a whole number (1 to 9)"),
        ("0", "--repeat: 0 is out of range (1 to 9)"),
        ("10", "--repeat: 10 is out of range (1 to 9)"),
    ],
)
def test_a_number_that_does_not_fit(value, said):
    with pytest.raises(InputError) as refused:
        whole_number("--repeat", 1, 9)(value)
    assert str(refused.value) == said


def test_a_number_without_a_highest_value():
    assert whole_number("--seed", 0)("12345678901") == 12345678901
    with pytest.raises(InputError, match="0 or more"):
        whole_number("--seed", 0)("-1")
