"""Prints the number of findings of the words linter at the end of the run, also when it passes."""

import pytest
import words

FOUND = pytest.StashKey[list]()


@pytest.fixture(scope="session")
def record_words(pytestconfig):
    def record(found):
        pytestconfig.stash[FOUND] = found
        return found

    return record


def pytest_terminal_summary(terminalreporter, config):
    found = config.stash.get(FOUND, None)
    if found is not None:
        terminalreporter.write_line(words.summary(found, components_max=8))
