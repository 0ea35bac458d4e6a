"""Run many tests under MPI in one job.

`plugin` is the controlling pytest process. It collects the tests, starts one ``mpiexec`` for each
number of ranks (`job`), sends it one test after the other, and merges the reports of the ranks
(`merge`). Each rank is a pytest session (`worker`), which collects a file when it gets the first
test of that file.

After each test, the ranks free the communicators that the test has left. If one of these has failed
on any rank, they keep all of them instead. Then they look for anything else that could disturb the
next test (`leftovers`). The controller kills the job after a failure, a time limit, the end of a
rank, or a leftover. The next test gets a new job.

A test that needs processes of its own is marked ``own_job("the reason")``, or its module has an
``ENVIRONMENT``. pytest-isolate-mpi starts an ``mpiexec`` for such a test alone. With
``HAN_TEST_POOL=no`` it does so for all tests.
"""

from typing import NamedTuple

ADDRESS = "HAN_TEST_POOL_ADDRESS"  # environment variable: the socket of a rank's controller


class Request(NamedTuple):
    """A request of the controller to all ranks; each rank answers with one object."""

    action: str  # "find", "run", "failed", "free", "keep", "look" or "stop"
    nodeid: str = ""


class Problem(NamedTuple):
    """The answer of a rank that could not carry out a request."""

    text: str


RENEW = "new ranks: "  # begins a leftover that is no fault of the last test
