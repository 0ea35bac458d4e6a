"""Timelines without MPI: shares of time, files, pictures, and conversion between clocks."""

import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import commands
import numpy as np
import pytest

from han.common.errors import HanError
from han.model.arrivals import arrivals
from han.model.timeline import (
    TaskTime,
    Timeline,
    TimelineError,
    shares,
    stream_shares,
    typical_call,
    whole_tasks,
)
from han.plots import timeline as plots_timeline
from han.plots.style import PlotError
from han.ranks.clocks import Clock, Reading, estimate
from han.trace.timeline_files import COLUMNS, from_json, load, to_chrome, to_json
from han.trace.timeline_parts import merge, select

PNG = b"\x89PNG"


def task(name, begin, end, *, rank=0, call=0, stream=None, **more):
    return TaskTime(rank, call, "bcast", stream or name[:2], name, begin, end, nbytes=64, **more)


def line(*times, **more):
    return Timeline("measured", "a title", tuple(times), **more)


PIPELINE = line(
    task("ib(0)", 0, 4),
    task("sb(0)", 0, 6, waited=4, copying=1),
    task("ib(1)", 4, 8),
    task("sb(1)", 6, 10, waited=2, copying=2),
    task("sb(0)", 1, 7, rank=1, waited=5, copying=1.5),
    nodes=(0, 0),
    communicator="c0ffee",
)


# ---- shares -------------------------------------------------------------------------------------


def test_shares_of_a_pipeline():
    found = shares(PIPELINE)
    first = found.ranks[0]
    assert (first.seconds, first.copying, first.reducing) == (10, 0.3, 0)
    assert first.overlapped == pytest.approx(0.2)  # from 4 to 6
    assert first.waiting == pytest.approx(0.7)
    second = found.ranks[1]
    assert (second.overlapped, second.copying) == (0, 0.25)
    whole = found.overall
    assert whole.seconds == 16
    assert whole.copying == pytest.approx(4.5 / 16)
    assert whole.overlapped == pytest.approx(2 / 16)
    assert whole.waiting + whole.copying + whole.reducing == pytest.approx(1)


def test_shares_of_streams():
    rows = {row.kind: row for row in stream_shares(PIPELINE)}
    assert (rows["ib"].tasks, rows["ib"].median) == (2, 4)
    assert rows["ib"].share.overlapped == pytest.approx(2 / 8)
    assert rows["sb"].tasks == 3
    assert rows["sb"].share.overlapped == pytest.approx(2 / 5)  # of 2 + 2 + 1 at work


def test_time_without_tasks_and_tasks_without_time_count_nothing():
    gap = line(task("ib(0)", 0, 1), task("ib(1)", 3, 4), task("sb(0)", 0.5, 0.5))
    found = shares(gap).overall
    assert (found.seconds, found.overlapped, found.waiting) == (2, 0, 1)
    assert shares(line()).overall.seconds == 0
    assert stream_shares(line()) == []


def test_streams_of_different_requests_overlap():
    two = line(task("ib(0)", 0, 2), task("ib(0)", 1, 3, request=1))
    assert shares(two).overall.overlapped == pytest.approx(1 / 3)
    assert shares(line(task("ib(0)", 0, 2), task("ib(1)", 1, 3))).overall.overlapped == 0


def test_the_rank_that_comes_last_is_told():
    late = [0.1, 0.1, 0.1, 0.0]  # rank 1 comes last, but for one call
    times = [
        task("sb(0)", k + (by if rank else 0.01), k + 0.1 + 0.0002, rank=rank, call=k)
        for k, by in enumerate(late)
        for rank in range(2)
    ]
    (found,) = arrivals(line(*times, task("sb(0)", 9, 10, call=9)))  # one rank is not late
    assert (found.calls, found.rank, found.times) == (4, 1, 3)
    assert found.describe() == (
        "bcast of 64B: rank 1 came last in 3 of 4 calls, by 90 ms; then 0.2 ms. "
        "61 % of the time was waiting for the last rank"
    )


def test_parts_of_a_task_are_joined():
    goes = [
        task("ib(0)", 0, 1),
        task("ib(1)", 1, 2, copying=0.5),
        task("ib(0)", 2, 5, copying=1),
        task("ib(1)", 5, 8, copying=1),
        task("sb(0)", 0, 9, waited=5),
        task("ib(0)", 8, 9, call=1),
    ]
    assert whole_tasks(goes) == [
        task("ib(0)", 0, 5, copying=1),
        task("sb(0)", 0, 9, waited=5),
        task("ib(1)", 5, 8, copying=1.5),
        task("ib(0)", 8, 9, call=1),
    ]


# ---- choosing -----------------------------------------------------------------------------------


def test_select_keeps_a_call_and_ranks():
    assert len(select(PIPELINE, ranks=[1]).times) == 1
    assert select(PIPELINE, call=(0, 0)) == PIPELINE
    with pytest.raises(TimelineError, match=r"no tasks of call 3; the trace has 0$"):
        select(PIPELINE, call=(0, 3))
    with pytest.raises(TimelineError, match="call 0 of persistent request 2; the trace has none"):
        select(PIPELINE, call=(2, 0))
    with pytest.raises(TimelineError, match=r"rank\(s\) 7-8; the trace has 0-1"):
        select(PIPELINE, ranks=[7, 8])


def test_merge_puts_the_ranks_of_a_communicator_together():
    parts = [select(PIPELINE, ranks=[r]) for r in (1, 0)]
    parts[0] = replace(parts[0], dropped=3, uncertainty=2e-6)
    other = line(task("sb(0)", -1, 0), communicator="b0b")
    first, second = merge([*parts, other])
    assert first == other
    assert second.times == merge([PIPELINE])[0].times
    assert (second.dropped, second.uncertainty) == (3, 2e-6)
    assert len(merge([line(), line()])) == 2, "those without a name stay apart"


def test_merge_refuses_parts_that_are_not_of_one_run():
    first, second = (select(PIPELINE, ranks=[r]) for r in (0, 1))
    for parts, said in (
        ([first, second, first], r"c0ffee: rank\(s\) 0 are in more than one part"),
        ([first, replace(second, nodes=(0, 1))], "c0ffee: the parts differ in nodes"),
        ([first, replace(second, title="another")], "c0ffee: the parts differ in title"),
    ):
        with pytest.raises(TimelineError, match=said):
            merge(parts)


def test_a_task_copies_no_longer_than_it_lasts():
    """A task's time begins when the stream's last task ends; copies before that are left out."""
    goes = [
        task("ib(1)", 0, 4, copying=4),
        task("ib(0)", 4, 8),
        task("ib(1)", 8, 9, copying=0.5, reducing=0.5),
    ]
    assert whole_tasks(goes)[-1] == task("ib(1)", 8, 9, copying=1)


def test_the_typical_call_is_the_median_one_of_the_busiest_shape():
    calls = [task("ib(0)", 10 * k, 10 * k + d, call=k) for k, d in enumerate((9, 1, 2))]
    brief = [replace(task("ib(0)", 50 + k, 50.1 + k, call=9 + k), nbytes=8) for k in range(20)]
    assert typical_call(line(*calls, *brief)) == (0, 2)
    assert typical_call(line()) is None


# ---- files --------------------------------------------------------------------------------------


def test_a_file_gives_back_the_timeline(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(to_json(PIPELINE))
    assert load(path) == PIPELINE
    assert from_json(to_json(line())) == line()


def edited(**changes):
    return json.dumps(json.loads(to_json(PIPELINE)) | changes)


def row(**changes):
    values = dict(zip(COLUMNS, json.loads(to_json(PIPELINE))["tasks"][0], strict=True)) | changes
    return list(values.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "x: damaged, not JSON"),
        ("[" * 100_000, "x: not a trace: nested too deep"),
        ("[]", "x: not a trace: its format is not han-trace"),
        ('{"format": "han-plan"}', "x: not a trace"),
        (edited(version=9), "x: version 9, this han reads version 1; record it again"),
        (edited(surprise=1), "x: surprise: "),
        (edited(source="guessed"), "x: source: Input should be 'measured' or 'predicted'"),
        (edited(tasks=[row(begin="soon")]), "x: tasks.0.5: Input should be a valid number"),
        (edited(tasks=[row(end=-1)]), "tasks.0: ends before it begins"),
        (edited(tasks=[row(waited=4.5)]), "tasks.0: waits 4.5 s of 4 s"),
        (edited(tasks=[row(copying=3, reducing=2)]), "tasks.0: copies and reduces 5 s of 4 s"),
        (edited(tasks=[row(rank=2)]), "tasks.0: rank 2 of 2 ranks"),
        (edited(columns=["rank"]), "columns are rank; rank, call, collective"),
        (edited(dropped=-1), "x: dropped: "),
    ],
)
def test_other_files_are_refused(text, said):
    with pytest.raises(TimelineError) as caught:
        from_json(text, "x")
    assert said in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(TimelineError, match=r"none\.json: cannot be read"):
        load(tmp_path / "none.json")


def test_chrome_gets_a_process_for_each_rank_and_a_thread_for_each_stream():
    events = json.loads(to_chrome([PIPELINE, PIPELINE]))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names[0] == "rank 0, node 0 (measured, c0ffee)"
    assert len(names) == 4
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {"ib", "sb"}
    (tasks,) = ([e for e in events if e["ph"] == "X" and e["pid"] == 1],)
    assert [(e["name"], e["ts"], e["dur"]) for e in tasks] == [("sb(0)", 1e6, 6e6)]
    assert tasks[0]["args"]["copying_us"] == 1.5e6
    assert {e["pid"] for e in events} == {0, 1, 2, 3}


# ---- clocks -------------------------------------------------------------------------------------


def exchange(offset, at, away, back, answering=5):
    """Return an exchange with a clock that shows `offset` less; the ways take `away` and `back`."""
    came = at + away - offset
    answered = came + answering
    return at, came, answered, answered + offset + back


def test_the_error_of_an_estimate_is_within_its_uncertainty():
    random.seed(1)
    for _ in range(200):
        offset = random.randint(-(10**15), 10**15)
        legs = [(random.randint(1, 900), random.randint(1, 900)) for _ in range(20)]
        tries = [exchange(offset, 10_000 * k, *leg) for k, leg in enumerate(legs)]
        found = estimate(tries)
        assert found.uncertainty == min(sum(leg) for leg in legs) / 2
        assert abs(found.offset - offset) <= found.uncertainty


def test_symmetric_round_trips_make_an_exact_estimate():
    found = estimate([exchange(123, 0, 40, 40), exchange(123, 1000, 100, 900)])
    assert (found.offset, found.uncertainty) == (123, 40)
    assert found.at == 40 - 123 + 2.5


def test_a_clock_that_drifts_is_followed_between_its_readings():
    clock = Clock((Reading(3e9, 400.0, 7e3), Reading(1e9, 100.0, 9e3)))
    times = np.array([0, 1e9, 2e9, 3e9, 5e9])
    assert clock.offset(times).tolist() == [100, 100, 250, 400, 400]
    assert clock.uncertainty == pytest.approx(9e-6)
    assert Clock().offset(times).tolist() == [0] * 5
    assert Clock((Reading(0, 5.0),)).offset(times).tolist() == [5] * 5


# ---- pictures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_timelines_are_drawn_side_by_side(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    predicted = replace(PIPELINE, source="predicted", communicator="")
    plots_timeline.gantt([PIPELINE, predicted, line()], path, "title")
    text = path.read_bytes()
    assert text.startswith(PNG) or b"<svg" in text
    with pytest.raises(PlotError, match="xyz"):
        plots_timeline.gantt([PIPELINE], tmp_path / "t.xyz")


def test_timelines_of_one_communicator_have_one_axis():
    short, predicted = line(task("sb(0)", 0, 1), communicator="c"), line(task("sb(0)", 0, 2))
    every = [PIPELINE, short, predicted]
    assert [plots_timeline.longest_of(one, every) for one in every] == [10, 2, 10]


def test_of_many_ranks_those_with_most_streams_are_drawn():
    nodes = tuple(r // 8 for r in range(64))
    times = [task("sb(0)", 0, 1, rank=r) for r in range(64)]
    times += [task("ib(0)", 0, 1, rank=r) for r in range(0, 64, 8)]
    panel = plots_timeline.panel_of(line(*times, nodes=nodes))
    assert len(panel.lanes) <= plots_timeline.MOST_LANES
    assert panel.timeline.ranks[:4] == [0, 1, 8, 9]
    assert panel.remark == f"{len(panel.timeline.ranks)} of 64 ranks are drawn"


# ---- the command --------------------------------------------------------------------------------


call = partial(commands.call, "trace")
refuse = partial(commands.refuse, "trace", kind=HanError)


@pytest.fixture
def folder(tmp_path):
    for r in (0, 1):
        part = select(PIPELINE, ranks=[r])
        (tmp_path / f"trace-c0ffee-{r}.json").write_text(to_json(part))
    return tmp_path


def test_the_table_has_streams_and_ranks(folder):
    text = call(folder)
    assert "# measured c0ffee: a title\n" in text
    assert "bcast of 64B  ib" in text
    assert "# bcast of 64B: rank 1 came last in 1 of 1 calls, by 1 s; then 9 s" in text
    assert text.splitlines()[-1].split()[:2] == ["rank", "1"]
    only = call(folder, "--ranks", "1", "--call", "0", "--comm", "c0ffee")
    assert "ib" not in only
    assert "no tasks" not in only
    (folder / "trace-c0ffee-0.json").unlink()
    assert "a title; no tasks of rank(s) 0\n" in call(folder)


def test_a_file_named_twice_counts_once(folder):
    part = folder / "trace-c0ffee-0.json"
    again = folder / ".." / folder.name
    assert call(folder, folder, part, again) == call(folder)
    (folder / "copy.json").write_text(part.read_text())
    assert "rank(s) 0 are in more than one part" in refuse(folder, folder / "copy.json")


def test_ranges_of_ranks_may_be_long(folder):
    assert call(folder, "--ranks", "1-99999999999") == call(folder, "--ranks", "1")


def test_json_says_the_same(folder):
    (record,) = json.loads(call(folder, "--json"))
    assert record["communicator"] == "c0ffee"
    assert record["shares"]["overall"]["seconds"] == 16
    assert [row["kind"] for row in record["streams"]] == ["ib", "sb"]
    assert [(row["rank"], row["times"]) for row in record["arrivals"]] == [(1, 1)]


def test_pictures_and_trace_events_are_written(folder, tmp_path):
    (tmp_path / "p.json").write_text(to_json(replace(PIPELINE, source="predicted")))
    chrome, gantt = tmp_path / "chrome.out", tmp_path / "g.png"
    text = call(folder, "--chrome", chrome, "--plot", gantt, "--predicted", tmp_path / "p.json")
    assert "# predicted" in text
    assert len({e["pid"] for e in json.loads(chrome.read_text())["traceEvents"]}) == 4
    assert gantt.read_bytes().startswith(PNG)


def test_a_page_is_written(folder, tmp_path):
    call(folder, "--html", tmp_path / "page.html")
    assert "<canvas" in (tmp_path / "page.html").read_text()


def test_a_window_of_time(folder):
    text = call(folder, "--from", 8.5)
    assert "rank 1" not in text
    assert "sb" in text
    assert "ib" not in text
    assert call(folder, "--to", 100) == call(folder)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "11", "--to", "12"], "no tasks from 11 s to 12 s; the trace has 10 s"),
        (["--call", "7"], "no tasks of call 7; the trace has 0"),
        (["--call", "x"], "--call 'x': a number expected, or request:number"),
        (["--ranks", "1-"], "--ranks '1-': numbers and ranges expected"),
        (["--ranks", "5-3"], "--ranks '5-3': 5 is greater than 3"),
        (["--ranks", "2,5-99999999999"], "no tasks of rank(s) 2, 5-99999999999; the trace has 0"),
        (["--ranks", "5"], "no tasks of rank(s) 5; the trace has 0"),
        (["--comm", "nope"], "no communicator 'nope'; the trace has c0ffee"),
        (["--plot", "/no/where.png"], "there is no folder /no"),
    ],
)
def test_mistakes_are_explained(folder, arguments, said):
    assert said in refuse(folder, *arguments)


def test_an_empty_folder_is_an_error(tmp_path):
    assert f"run a program with HAN_TRACE={tmp_path}" in refuse(tmp_path)
    assert "A program that makes no han.Comm writes none" in refuse(Path("/nowhere"))


def test_a_prediction_of_another_call_is_refused(folder, tmp_path):
    times = tuple(replace(t, collective="allreduce") for t in PIPELINE.times)
    (tmp_path / "p.json").write_text(to_json(replace(PIPELINE, times=times, source="predicted")))
    said = refuse(folder, "--predicted", tmp_path / "p.json")
    assert "p.json: predicts allreduce of 64B; the trace has bcast of 64B" in said
