"""What ``han simulate`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from han._units import format_size

if TYPE_CHECKING:
    from han.tasks.signature import Signature
    from han.tuning.prediction import Predicted, Where

    Answers = list[tuple[Signature, dict[str, Predicted]]]

COLUMN = 14


def text(answers: Answers, where: Where, machine: str, calls: int) -> str:
    """Return a table of times; for one call also what it runs and what the time is made of."""
    first = answers[0][0]
    lines = [
        f"# {first.collective} on {machine}: {where.machine.about}",
        f"# {where.size} ranks on {where.nodes} nodes of {where.ppn}; predicted microseconds "
        + ("of a call" if calls == 1 else f"of a call, {calls} back to back"),
    ]
    names = list(answers[0][1])
    if len(answers) == len(names) == 1:
        return "\n".join([*lines, *_details(*answers[0][1].values())])
    lines.append("#" + f"{'size':>9}" + "".join(f"{name:>{COLUMN}}" for name in names))
    for signature, found in answers:
        best = min(one.seconds for one in found.values())
        cells = "".join(
            f"{_us(one.seconds):>{COLUMN - 1}}{'*' if _wins(one.seconds, best, names) else ' '}"
            for one in found.values()
        )
        lines.append(f"{format_size(signature.nbytes):>10}{cells}")
    return "\n".join(lines)


def _details(one: Predicted) -> list[str]:
    plan, found = one.plan, one.simulation
    choice = plan.choice
    segment = "whole" if choice.segment is None else format_size(choice.segment)
    levels = [
        f"  {name:<9} {choice.levels[k].describe()}" for k, name in enumerate(plan.topology.names)
    ]
    total = max(found.finish[-1])
    slowest = max(range(len(found.copying)), key=lambda r: found.finish[-1][r])
    return [
        f"time      {_us(one.seconds)} us",
        f"segment   {segment}, {choice.schedule}",
        *levels,
        f"rank {slowest}, the last to be done: "
        f"copying {found.copying[slowest] / total:.0%}, "
        f"reducing {found.reducing[slowest] / total:.0%}, "
        f"messages {found.messaging[slowest] / total:.0%} of the time, else waiting",
        *(
            f"messages  {count} on {name}, {format_size(nbytes)}"
            for name, count, nbytes in zip(one.levels, found.messages, found.nbytes, strict=True)
        ),
    ]


def _wins(seconds: float, best: float, names: list[str]) -> bool:
    return len(names) > 1 and seconds == best


def _us(seconds: float) -> str:
    us = seconds * 1e6
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"


def record(answers: Answers, where: Where, machine: str, calls: int) -> dict[str, Any]:
    """Return the answers as plain data; times in seconds."""
    return {
        "machine": machine,
        "nodes": where.nodes,
        "ppn": where.ppn,
        "calls": calls,
        "collective": answers[0][0].collective,
        "predictions": [
            {
                "nbytes": signature.nbytes,
                "choice": name,
                "seconds": one.seconds,
                "operations": one.simulation.operations,
                "messages": dict(zip(one.levels, one.simulation.messages, strict=True)),
                "bytes": dict(zip(one.levels, one.simulation.nbytes, strict=True)),
            }
            for signature, found in answers
            for name, one in found.items()
        ],
    }
