"""Run tests of pytest, and record the outcome of each."""

import pytest
from records import Records, failure, wanted

ENDS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED,
        pytest.ExitCode.INTERRUPTED)  # fmt: skip


def run(spec: dict, records: Records) -> None:
    """Run the tests that are wanted."""
    off = [f"-pno:{name}" for name in ("cacheprovider", "isolate_mpi", "xdist", "hypothesispytest")]
    # Without conftest.py: pylops-mpi's does nothing but append the rank to tests' names.
    arguments = ["-q", "--no-header", "--noconftest", *off, spec["tests"]]
    code = pytest.main(arguments, plugins=[Recorder(spec, records)])
    if code not in ENDS:
        raise SystemExit(f"pytest ended with {code!r}")


class Recorder:
    """Selects tests, and writes a record when a test starts and when it ends."""

    def __init__(self, spec, records):
        self._spec = spec
        self._records = records
        self._failures = []
        self._skipped = ""

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if self._wants(item)]

    def _wants(self, item):
        name = _name(item)
        return name.split(".")[0] in self._spec["modules"] and wanted(self._spec, name)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self._failures, self._skipped = [], ""
        self._records.put(start=_name(item))
        result = yield
        state = "failed" if self._failures else "skipped" if self._skipped else "passed"
        self._records.put(
            end=_name(item), state=state, reason=self._skipped, failures=self._failures,
            backends={}, seconds=0,
        )  # fmt: skip
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.skipped:
            self._skipped = str(report.longrepr)
        elif report.failed:
            err = (call.excinfo.type, call.excinfo.value, call.excinfo.tb)
            self._failures.append({"backend": "", **failure(err, {})})
            if self._records.unusable(err):
                item.session.shouldstop = "the communicator cannot be used any more"
        return report


def _name(item):
    """Return a test's name, which is the same on all ranks."""
    return f"{item.module.__name__}.{item.name}"
