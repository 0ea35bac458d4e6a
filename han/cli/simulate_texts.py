"""What ``han simulate`` prints."""

from __future__ import annotations

from typing import Any

from han.common.tables import shown_table
from han.common.units import format_size
from han.tuning.prediction import Predicted, Where

Answers = dict[tuple[int, str], Predicted]  # by bytes and choice


def text(answers: Answers, where: Where, machine: str, calls: int) -> str:
    """Return a table of times, or the details of a single case."""
    first = next(iter(answers.values())).plan.signature
    lines = [
        f"# {first.collective} on {machine}: {where.machine.about}",
        f"# {where.size} ranks on {where.nodes} nodes of {where.ppn}; predicted microseconds "
        + ("of a call" if calls == 1 else f"of a call, {calls} calls in a row"),
    ]
    if calls == 1:
        lines.append("# a single call; calls in a loop overlap, see --calls")
    if len(answers) == 1:
        return "\n".join([*lines, *_details(*answers.values())])
    lines += ["# *: the fastest"] if len(answers) > len({n for n, _ in answers}) else []
    names, rows = list(dict.fromkeys(name for _, name in answers)), []
    for nbytes in dict.fromkeys(nbytes for nbytes, _ in answers):
        times = [answers[nbytes, name].seconds for name in names]
        marks = ["*" if len(names) > 1 and t == min(times) else "" for t in times]
        cells = (mark + short(t) for mark, t in zip(marks, times, strict=True))
        rows.append([format_size(nbytes), *cells])
    return "\n".join([*lines, shown_table("", ["size", *names], rows)])


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
        f"call      {plan.signature.describe()}",
        f"time      {short(one.seconds)} us",
        f"segment   {segment}, {choice.schedule}",
        *levels,
        f"rank {slowest} ends last: "
        f"copying {found.copying[slowest] / total:.0%}, "
        f"reducing {found.reducing[slowest] / total:.0%}, "
        f"messages {found.messaging[slowest] / total:.0%}, else waiting",
        *(
            f"messages  {count} on {name}, {format_size(nbytes)}"
            for name, count, nbytes in zip(one.levels, found.messages, found.nbytes, strict=True)
        ),
    ]


def short(seconds: float) -> str:
    """Return seconds as microseconds, rounded to two decimals below 100 and to none above."""
    us = seconds * 1e6
    return f"{us:.2f}" if us < 100 else f"{us:.0f}"


def record(answers: Answers, where: Where, machine: str, calls: int) -> dict[str, Any]:
    """Return the answers as plain data; times in seconds."""
    return {
        "machine": machine,
        "nodes": where.nodes,
        "ppn": where.ppn,
        "calls": calls,
        "collective": next(iter(answers.values())).plan.signature.collective,
        "predictions": [
            {
                "nbytes": nbytes,
                "choice": name,
                "seconds": one.seconds,
                "operations": one.simulation.operations,
                "messages": dict(zip(one.levels, one.simulation.messages, strict=True)),
                "bytes": dict(zip(one.levels, one.simulation.nbytes, strict=True)),
            }
            for (nbytes, name), one in answers.items()
        ],
    }
