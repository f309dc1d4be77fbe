"""Runs a module's unittest tests and appends one JSON line for each: what began, and how it ended.

A test that takes too long ends the process; the caller goes on with the tests after it. Standard
library only, because it runs inside the environments of the suites.
"""

import faulthandler
import json
import logging
import os
import sys
import unittest

SECONDS_MAX = 60


class Recorder(unittest.TestResult):
    """Writes each outcome at once, so that a crash loses nothing."""

    def __init__(self, out, done):
        super().__init__()
        self.out, self.done = out, done

    def write(self, test, outcome, text=""):
        self.out.write(json.dumps({"test": test.id(), "outcome": outcome, "text": text[-2000:]}) + "\n")
        self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        self.write(test, "began")
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)

    def addSuccess(self, test):
        self.write(test, "passed")

    def addError(self, test, error):
        self.write(test, "failed", self._exc_info_to_string(error, test))

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error:
            self.write(test, "failed", self._exc_info_to_string(error, test))

    def addSkip(self, test, reason):
        self.write(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.write(test, "passed")

    def addUnexpectedSuccess(self, test):
        self.write(test, "failed", "unexpected success")


def flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


def main(module, out_path, choice_path, folder=None):
    """choice: {"skip": [ids that are done], "only": [ids] or null}; folder: that of a module not installed"""
    choice = json.loads(open(choice_path).read())
    try:
        import test.support
        # No test may need another host; everything else may run.
        test.support.use_resources = ["cpu", "subprocess", "walltime"]
    except ImportError:
        pass
    if module.startswith("tornado."):
        # As tornado's own runner does; many of its tests allow no line in a log.
        logging.getLogger("tornado.access").setLevel(logging.CRITICAL)
    sys.path.insert(0, folder or os.getcwd())
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    wanted = unittest.TestSuite()
    grouped = {}
    for case in flat(suite):
        name = case.id()
        if name not in choice["skip"] and (choice["only"] is None or name in choice["only"]):
            grouped.setdefault(type(case), []).append(case)
    for cases in grouped.values():
        wanted.addTest(unittest.TestSuite(cases))
    with open(out_path, "a") as out:
        wanted.run(Recorder(out, set()))
        out.write(json.dumps({"test": "", "outcome": "finished", "text": ""}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:5])
