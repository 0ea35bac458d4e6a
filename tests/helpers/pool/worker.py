"""A rank of a job: a pytest session that runs the tests which the controller names."""

import gc
import os
import select
import signal
import socket
import threading
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from mpi4py import MPI

from pool import ADDRESS, Problem, Request
from pool.leftovers import Made, Seen, left_since

LONGEST_NAP = 0.1  # seconds between probes, which let MPI make progress for other ranks


class Worker:
    """Answers requests until one says stop."""

    def __init__(self) -> None:
        self.connection = _connect(os.environ.pop(ADDRESS))
        self.made = Made()
        self.before = Seen.now()  # the state before the current or latest test
        self.items: dict[str, dict[str, pytest.Item]] = {}  # tests by file and node id
        self.reports: list[pytest.TestReport] = []
        self.uncollected: list[str] = []  # errors of files that could not be imported

    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect nothing: tests are collected when they are requested."""
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the error of a file that cannot be imported on this rank."""
        if report.failed:
            self.uncollected.append(report.longreprtext)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests."""
        session.testscollected = 1  # pytest treats a session without tests as an error
        for request in self._requests():
            try:
                answer = self._answer(session, request)
            except Exception:
                answer = Problem(traceback.format_exc())
            self.connection.send(answer)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run a test, and tear down all its fixtures after it."""
        self.reports = runtestprotocol(item, log=False, nextitem=None)
        return True

    def _requests(self) -> Iterator[Request]:
        """Yield requests; while there is none, probe at intervals to let MPI make progress."""
        while True:
            nap = 0.001
            while not self.connection.poll(nap):
                MPI.COMM_WORLD.Iprobe()
                nap = min(2 * nap, LONGEST_NAP)
            request = self.connection.recv()
            if request.action == "stop":
                return
            yield request

    def _answer(self, session: pytest.Session, request: Request) -> Any:
        if request.action in ("free", "keep"):
            getattr(self.made, request.action)()
            return True
        if request.action == "look":
            return left_since(self.before, self.made)
        if request.action == "failed":
            return self.made.some_failed()
        item = self._find(session, request.nodeid)
        if request.action == "find":
            return True
        self.before = Seen.now()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return self.reports

    def _find(self, session: pytest.Session, nodeid: str) -> pytest.Item:
        path = nodeid.partition("::")[0]
        if path not in self.items:
            found = session.perform_collect([str(session.config.rootpath / path)])
            self.items[path] = {item.nodeid: item for item in found}
            gc.collect()
            gc.freeze()  # later garbage collections need not visit modules
        if nodeid not in self.items[path]:
            raise LookupError("\n".join([f"no test {nodeid} here", *self.uncollected]))
        return self.items[path][nodeid]


def _connect(address: str) -> Connection:
    """Connect to the controller, and send it this rank and process number."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(address)
    connection = Connection(link.detach())
    connection.send((MPI.COMM_WORLD.rank, os.getpid()))
    threading.Thread(target=_end_with, args=[connection.fileno()], daemon=True).start()
    return connection


def _end_with(controller: int) -> None:
    """Exit when the controller has ended, even in the middle of a test."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread gets them
    watch = select.poll()
    watch.register(controller, select.POLLRDHUP)
    watch.poll()
    os._exit(1)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the worker, whose hooks run before those of pytest-isolate-mpi."""
    config.pluginmanager.register(Worker(), "pool-worker")
