"""Merge the reports of several ranks on one test."""

from collections.abc import Mapping, Sequence

import pytest

Reports = Sequence[pytest.TestReport]
PHASES = ("setup", "call", "teardown")
WORST_FIRST = ("failed", "skipped", "passed")


def has_failed(reports: object) -> bool:
    """Return whether a rank's answer has a failed report, or is not a list of reports."""
    return not isinstance(reports, list) or any(report.failed for report in reports)


def merged(by_rank: Mapping[int, Reports]) -> list[pytest.TestReport]:
    """Return a report for each phase: of a rank that failed, else of one that skipped the test.

    If several ranks failed, it is the report that arrived first, followed by the others' errors.
    """
    found = []
    for phase in PHASES:
        there = {
            rank: report
            for rank, reports in by_rank.items()
            for report in reports
            if report.when == phase
        }
        if there:
            found.append(_worst(there))
    return found


def _worst(by_rank: Mapping[int, pytest.TestReport]) -> pytest.TestReport:
    outcome = next(o for o in WORST_FIRST if any(r.outcome == o for r in by_rank.values()))
    same = {rank: report for rank, report in by_rank.items() if report.outcome == outcome}
    if outcome != "failed":
        return same[min(same)]
    first, *others = same
    report = same[first]
    passed = sorted(by_rank.keys() - same.keys())
    said = f"rank {first} failed first of {sorted(same)}; {passed} did not fail"
    report.sections.insert(0, ("Ranks", said))
    for rank in others:
        report.sections.append((f"Rank {rank}", same[rank].longreprtext))
    return report
