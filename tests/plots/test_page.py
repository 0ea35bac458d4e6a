"""Pages of timelines: they stand alone, hold the same numbers as the table, and are bounded."""

import json
import re
from dataclasses import replace

import pytest

from han.model.timeline import TaskTime, Timeline
from han.plots.page import page


def task(name, begin, end, rank=0, call=0, **more):
    stream = f"bcast@{'network' if name[0] == 'i' else 'node'}"
    return TaskTime(rank, call, "bcast", stream, name, begin, end, nbytes=8000, **more)


LINE = Timeline(
    "measured",
    "2 ranks on 1 node",
    (
        task("ib(0)", 5.0, 5.000004),
        task("sb(0)", 5.0, 5.000006, waited=4e-6, copying=1e-6),
        task("sb(0)", 5.000001, 5.000007, rank=1, waited=5e-6, copying=1.5e-6),
    ),
    nodes=(0, 0),
    communicator="c0ffee",
)


def data_of(text):
    """Return the data in a page."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


def test_lanes_and_tasks_are_in_microseconds_from_the_first_task():
    (found,) = data_of(page([LINE]))
    assert [lane["label"] for lane in found["lanes"]] == ["rank 0 ib", "rank 0 sb", "rank 1 sb"]
    assert [lane["level"] for lane in found["lanes"]] == ["network", "node", "node"]
    assert found["names"] == ["ib(0)", "sb(0)"]
    assert found["calls"] == ["bcast of 8000B, call 0"]
    assert found["lanes"][2]["tasks"] == [[1, 5, 7, 1.5, 0, 0, 1]]
    assert found["end"] == pytest.approx(7)
    assert found["view"] == pytest.approx([0, 7])


def test_a_page_asks_for_nothing_and_says_what_the_table_says():
    text = page([LINE])
    assert not re.search(r"""(src|href)=|url\(|import\s|https?://""", text)
    assert "<h2>measured c0ffee: 2 ranks on 1 node</h2>" in text
    assert "bcast of 8000B: rank 1 came last in 1 of 1 calls" in text
    assert '<td>bcast of 8000B</td><td class="left">ib</td>' in text
    assert text.count("<canvas") == 1


def test_texts_of_a_trace_are_no_markup():
    times = tuple(replace(t, task="<b>(0)", collective="</script>") for t in LINE.times)
    text = page([replace(LINE, title="<i>x</i>", times=times)])
    assert "<i>x" not in text
    assert "<b>(" not in text
    assert text.count("</script>") == 2
    assert data_of(text)[0]["names"] == ["<b>(0)"]


def test_timelines_of_a_communicator_begin_with_one_length_of_time():
    longer = replace(LINE, times=(task("sb(0)", 0.0, 2e-5),), source="predicted", communicator="")
    first, second = data_of(page([LINE, longer]))
    assert first["view"][1] - first["view"][0] == pytest.approx(20)
    assert second["view"] == pytest.approx([0, 20])


def test_of_many_tasks_the_first_are_drawn_and_the_page_says_so():
    times = tuple(task("sb(0)", k, k + 0.5, call=k) for k in range(1000))
    text = page([replace(LINE, times=times)], most=100)
    (found,) = data_of(text)
    assert sum(len(lane["tasks"]) for lane in found["lanes"]) == 100
    assert "Drawn are the first 100 of 1000 tasks, 99.5 s of 1000 s: --from" in text


def test_a_timeline_without_tasks_has_a_page():
    (found,) = data_of(page([Timeline("measured", "alone", ())]))
    assert found["lanes"] == []
