"""Calls that run a given choice, whatever the rules say, on a communicator as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from han.message.parsers import Parser
from han.runtime.prepared import Prepared
from han.runtime.state import State
from han.tasks.choice import Choice
from han.tasks.plan import Plan


@dataclass(frozen=True)
class Forced:
    """A blocking call with a choice of its own: run it with ``call()``, in step with all ranks.

    `plan` is that of the call's size.
    """

    call: Callable[[], None]
    plan: Plan
    prepared: Prepared


def forced(
    state: State, parser: Parser, arguments: tuple[object, ...], choice: Choice,
    shared: bool = False,
) -> Forced:  # fmt: skip
    """Prepare a call that runs `choice`; collective.

    The arguments are contiguous arrays in memory of the host, with `shared` those of all ranks
    shared arrays. All ranks pass the same choice, which can serve the call
    (``RuleTable.objection``).
    """
    state.health.live()
    with state.health.preparing():
        message = parser.parse(state.comm, *arguments)
        called = replace(message.signature, mapped=shared)
        planned = state.parts.planner.running(called, choice)
        prepared = state.parts.maker.make(planned, message, state.parts.engines.own)
    run = partial(
        state.parts.engines.own.run, prepared.native, message.send, message.recv, message.keep,
        called.nbytes, called.sizes,
    )  # fmt: skip
    return Forced(run, planned.plan.of_size(called.nbytes, called.counts), prepared)
