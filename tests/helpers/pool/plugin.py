"""The controlling process: it decides which job runs a test, and whether to keep the job after."""

import os
import sys
from typing import Literal

import pytest

from pool import RENEW, Problem, Request
from pool.job import Answers, Job, JobError
from pool.merge import has_failed, merged

SWITCH = "HAN_TEST_POOL"  # "no": a job for each test
ISOLATED = "PYTEST_ISOLATE_MPI_IS_FORKED"  # set in ranks that pytest-isolate-mpi has started
SECONDS = {"s": 1, "m": 60, "h": 3600}
NO_LIMIT = 600.0  # seconds for a test that names no time limit
FIND_LIMIT = 180.0  # seconds to import a test's module on all ranks
TIDY_LIMIT = 30.0  # seconds to free communicators, and to look for what is left


def register(config: pytest.Config) -> None:
    """Run the tests of this session in jobs, unless the session is itself a rank of one."""
    if not is_rank(config) and os.environ.get(SWITCH) != "no":
        config.pluginmanager.register(Pools(config), "pools")


def is_rank(config: pytest.Config) -> bool:
    """Return whether this session is a rank of a job, and not the controller."""
    return config.pluginmanager.has_plugin("pool.worker") or ISOLATED in os.environ


def is_pooled(item: pytest.Item) -> bool:
    """Return whether a test may share its processes with other tests."""
    module = getattr(item, "module", None)
    alone = item.get_closest_marker("own_job") or hasattr(module, "ENVIRONMENT")
    return item.get_closest_marker("mpi") is not None and not alone


def ranks_of(item: pytest.Item) -> int:
    """Return the number of ranks of a test."""
    return int(item.callspec.params.get("mpi_ranks", 1)) if hasattr(item, "callspec") else 1


def limit_of(item: pytest.Item) -> float:
    """Return a test's time limit in seconds."""
    mark = item.get_closest_marker("mpi")
    assert mark is not None
    timeout = mark.kwargs.get("timeout", NO_LIMIT)
    return float(timeout * SECONDS[mark.kwargs.get("unit", "s")])


class Pools:
    """Runs pooled tests in one job per number of ranks, and leaves other tests to pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.job: Job | None = None
        self.started, self.served = 0, 0
        self.notes: list[str] = []  # why jobs were replaced
        self.crashed = False  # whether a job without a failed test ended with an error

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort tests by their number of ranks, so that one job is alive at a time."""
        items.sort(key=lambda item: ranks_of(item) if is_pooled(item) else sys.maxsize)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a test in the job, and decide whether the next test may use the job too."""
        if not is_pooled(item):
            self._stop()
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Stop the job; a job that ended with an error fails the session."""
        self._stop()
        if self.crashed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the number of jobs, and why they were replaced."""
        if self.started:
            terminalreporter.section("pools of ranks")
            terminalreporter.line(f"{self.served} tests in {self.started} jobs")
            for note in self.notes:
                terminalreporter.line(note)

    # ---- one test ---------------------------------------------------------------------------

    def _reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        try:
            job = self._job_of(ranks_of(item))
        except JobError as error:
            return [_failure(item, str(error))]
        self.served += 1
        answers = job.ask(Request("find", item.nodeid), FIND_LIMIT, _is_problem)
        if not _problem(answers):
            answers = job.ask(Request("run", item.nodeid), limit_of(item), has_failed)
        reports = _told(item, answers, job)
        if any(report.failed for report in reports):
            self._end(f"failed: {item.nodeid}")
            return reports
        return [*reports, *self._looked_after(item, job)]

    def _looked_after(self, item: pytest.Item, job: Job) -> list[pytest.TestReport]:
        """Kill the job if the test has left something in it, which is an error unless marked."""
        problem, left = self._tidied(job)
        if not problem and not left:
            return []
        text, output = f"left by {item.nodeid}: {problem or '; '.join(sorted(left))}", job.output()
        self._end(text)
        marker = item.get_closest_marker("leaves")
        meant = (RENEW, *(marker.args if marker else ()))
        if not problem and all(any(part in found for part in meant) for found in left):
            return []
        return [_failure(item, text, output, when="teardown")]

    def _tidied(self, job: Job) -> tuple[str, set[str]]:
        """Let the ranks free or keep communicators; return a problem, and what else is left."""
        answers = job.ask(Request("failed"), TIDY_LIMIT, _is_problem)
        if not _problem(answers):
            action = "keep" if any(answers.by_rank.values()) else "free"
            answers = job.ask(Request(action), TIDY_LIMIT, _is_problem)
        if not _problem(answers):
            answers = job.ask(Request("look"), TIDY_LIMIT, _is_problem)
        problem = _problem(answers)
        return problem, set() if problem else {t for a in answers.by_rank.values() for t in a}

    # ---- the job ----------------------------------------------------------------------------

    def _job_of(self, ranks: int) -> Job:
        """Return the current job if it has that many ranks, else a new one."""
        if self.job is not None and self.job.ranks != ranks:
            self._stop()
        if self.job is None:
            self.job = Job(ranks, self._command(), self.config.option.capture == "no")
            self.started += 1
        return self.job

    def _command(self) -> list[str]:
        """Return the command line of a rank, with this session's options for reports."""
        option = self.config.option
        command = [sys.executable, "-m", "mpi4py", "-m", "pytest", "-p", "pool.worker"]
        command += ["--rootdir", str(self.config.rootpath), "-p", "no:cacheprovider"]
        if self.config.inipath:
            command += ["-c", str(self.config.inipath)]
        command += ["--tb", option.tbstyle, "--color", option.color, "--capture", option.capture]
        command += ["--no-header", "--no-summary"]
        command += ["-" + "v" * option.verbose] if option.verbose > 0 else []
        return [*command, *(["--showlocals"] if option.showlocals else [])]

    def _end(self, why: str) -> None:
        """Kill the job, so that the next test gets a new one."""
        self.notes.append(why)
        if self.job is not None:
            self.job.kill()
        self.job = None

    def _stop(self) -> None:
        """Stop the job by letting its ranks finalize MPI."""
        if self.job is not None:
            job, said = self.job, self.job.output()
            status = job.stop()
            if status != 0:
                self.crashed = True
                how = "did not end in time" if status is None else f"ended with status {status}"
                self.notes.append(f"FAILED: {job.ranks} ranks {how}\n{said}")
        self.job = None


def _is_problem(answer: object) -> bool:
    return isinstance(answer, Problem)


def _problem(answers: Answers) -> str:
    """Return what went wrong outside the test itself, or ""."""
    texts = [f"rank {r}: {a.text}" for r, a in answers.by_rank.items() if isinstance(a, Problem)]
    return "\n".join([*texts[:1], *([answers.missing] if answers.missing else [])])


def _told(item: pytest.Item, answers: Answers, job: Job) -> list[pytest.TestReport]:
    """Return the reports of a test, or a failure that says why ranks have sent none."""
    problem = _problem(answers)
    reports = merged({r: told for r, told in answers.by_rank.items() if isinstance(told, list)})
    failed = [report for report in reports if report.failed]
    if problem and not failed:
        return [_failure(item, problem, job.output())]
    if problem:
        failed[0].sections.append(("Other ranks", problem))
    return reports


def _failure(
    item: pytest.Item, text: str, output: str = "", when: Literal["call", "teardown"] = "call"
) -> pytest.TestReport:
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, when)
    if output:
        report.sections.append(("Output of the job", output))
    return report
