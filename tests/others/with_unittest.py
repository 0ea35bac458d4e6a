"""Run tests of unittest, and record the outcome of each, with the array backends that it tried."""

import sys
import time
import unittest
from collections import Counter

from records import Records, failure, wanted


def run(spec: dict, records: Records) -> None:
    """Run the tests that are wanted, module by module."""
    sys.path.insert(0, spec["tests"])
    recorder = Recorder(records)
    suites = {module: _loaded(module, recorder) for module in spec["modules"]}
    for suite in suites.values():
        tests = [test for test in _flat(suite) if wanted(spec, test.id())]
        unittest.TestSuite(tests).run(recorder)
        if recorder.shouldStop:
            break


def _loaded(module, recorder):
    """Return a module's tests, as mpi4py loads them: all modules before the first test."""
    try:
        return unittest.defaultTestLoader.loadTestsFromName(module)
    except unittest.SkipTest as reason:
        recorder.outcome(f"{module}.(import)", reason=str(reason))
    except Exception:
        recorder.outcome(f"{module}.(import)", err=sys.exc_info())
    return unittest.TestSuite()


def _flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flat(item)
        else:
            yield item


class Recorder(unittest.TestResult):
    """Writes a record when a test starts and when it ends."""

    def __init__(self, records):
        super().__init__()
        self._records = records
        self._open()

    def _open(self):
        self._state, self._reason, self._failures = "passed", "", []
        self._backends = Counter()
        self._since = time.perf_counter()

    def startTest(self, test):
        super().startTest(test)
        self._open()
        self._records.put(start=test.id())

    def stopTest(self, test):
        self._end(test.id())
        super().stopTest(test)

    def _end(self, name):
        self._records.put(
            end=name, state=self._state, reason=self._reason, failures=self._failures,
            backends=self._backends, seconds=round(time.perf_counter() - self._since, 3),
        )  # fmt: skip

    def addSubTest(self, test, subtest, err):
        self._backends[_backend()] += 1
        if err is not None:
            self._failed(err, dict(subtest.params))

    def addFailure(self, test, err):
        self._outside(test, err)

    def addError(self, test, err):
        self._outside(test, err)

    def addSkip(self, test, reason):
        self._state, self._reason = "skipped", reason

    def addUnexpectedSuccess(self, test):
        self._state = "unexpected success"

    def _outside(self, test, err):
        """Note a failure outside subtests; the set-up of a class or module is a test of its own."""
        if isinstance(test, unittest.TestCase):
            self._failed(err, {})
        else:
            self.outcome(test.id(), err=err)

    def outcome(self, name, err=None, reason=""):
        """Record what is no test: that it failed, or that it was skipped."""
        self._open()
        self._records.put(start=name)
        if err:
            self._failed(err, {})
        else:
            self._state, self._reason = "skipped", reason
        self._end(name)

    def _failed(self, err, parameters):
        self._state = "failed"
        self._failures.append({"backend": _backend(), **failure(err, parameters)})
        self.shouldStop = self.shouldStop or self._records.unusable(err)


def _backend():
    """Return the name of the class of arrays that mpi4py's loop over them is at, or ''."""
    loop = getattr(sys.modules.get("arrayimpl"), "loop", None)
    return getattr(getattr(loop, "array", None), "__name__", "")
