"""Run tests under MPI in jobs that serve many of them.

`plugin` is the controlling pytest process: it collects the tests, starts one ``mpiexec`` per number
of ranks (`job`), sends it one test after the other and merges what the ranks report (`merge`).
Each rank is a pytest session of its own (`worker`), which collects a file when the first test of it
is asked for. After each test the ranks free the communicators that it has left (they keep them if
one has failed on any rank) and look for anything else that could disturb the next test
(`leftovers`). After a failure, a time limit, a rank that ended or a leftover the job is killed, and
the next test gets a new one.

A test that needs a process of its own is marked ``own_job("the reason")``, or its module has an
``ENVIRONMENT``: pytest-isolate-mpi starts an ``mpiexec`` for it alone. ``HAN_TEST_POOL=no`` does so
for all tests.
"""

from __future__ import annotations

from typing import NamedTuple

ADDRESS = "HAN_TEST_POOL_ADDRESS"  # the variable that tells a rank the socket of its controller


class Request(NamedTuple):
    """What the controller asks all ranks for; each answers with one object."""

    action: str  # "find", "run", "failed", "free", "keep", "look" or "stop"
    nodeid: str = ""


class Problem(NamedTuple):
    """The answer of a rank that could not do what it was asked for."""

    text: str
