"""The style of pictures: colours, names of lines, rows of panels."""

from itertools import pairwise

import pytest

from han.measure.merged import Merged
from han.model.measurements import Times
from han.model.series import Panel
from han.plots import plots, style
from han.plots.style import BUILT_IN, COLORS, HAN, LIBRARY, PAGE, SMALL, colors_of


def test_han_and_the_libraries_have_one_colour_in_all_pictures():
    names = ["Open MPI 5.0.11", "MPICH 5.0.2", "han", "other"]
    found = colors_of(names)
    assert (found["han"], found["MPICH 5.0.2"]) == (HAN, LIBRARY)
    assert colors_of(["han", "Open MPI 4.1"])["Open MPI 4.1"] == found["Open MPI 5.0.11"]
    assert len({*found.values()}) == 4
    assert colors_of(["tuned", "built-in", "MPI"]) == {
        "tuned": HAN, "built-in": BUILT_IN, "MPI": LIBRARY,
    }  # fmt: skip


def test_two_runs_of_a_library_have_two_colours():
    assert len({*colors_of(["MPICH 5.0.2 (a)", "MPICH 5.0.2 (b)", "han"]).values()}) == 3
    assert len({*colors_of(map(str, range(8))).values()}) == len(COLORS)


def test_names_of_lines_do_not_cover_each_other():
    found = style._spread({"a": 0.5, "b": 0.51, "c": 0.99, "d": 1.0}, 0.1)
    places = sorted(found.values())
    assert [*found] == ["a", "b", "c", "d"]
    assert all(b - a > 0.0999 for a, b in pairwise(places))
    assert places[-1] == style.HIGHEST
    assert style._spread({"a": 0.2, "b": 0.6}, 0.1) == {"a": 0.2, "b": 0.6}


def test_labels_of_sizes_do_not_cover_each_other():
    assert style.apart([8, 512, 8 << 10, 16 << 10, 128 << 10, 1 << 20], 6) == [
        8, 512, 8 << 10, 128 << 10, 1 << 20,
    ]  # fmt: skip
    assert style.apart([0], 6) == [0]
    assert style.apart([], 6) == []


def figure_of(draw, monkeypatch, *args, **more):
    """Draw a picture; return its figure, laid out."""
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    draw(*args, path=None, **more)
    figures[0].canvas.draw()
    return figures[0]


def rows(collectives):
    times = {n: Times(1.0 + n, 1.0 + n, 1.5 + n, 3) for n in (8, 64, 1 << 20)}
    return [
        Merged(name, n, {"MPICH 5": one}, {"MPICH 5": one})
        for name in collectives
        for n, one in times.items()
    ]


def test_nine_collectives_stand_in_three_rows_as_wide_as_a_page(monkeypatch):
    names = [f"call{k}" for k in range(8)]
    figure = figure_of(plots.comparison, monkeypatch, rows(names))
    assert figure.get_figwidth() == PAGE
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == 16
    assert {axis.get_subplotspec().get_gridspec().get_geometry() for axis in shown} == {(6, 3)}
    assert [axis.get_title() for axis in shown if axis.get_title()] == names


@pytest.mark.parametrize("count", [1, 2, 4])
def test_lines_are_named_beside_their_ends(count, monkeypatch):
    figure = figure_of(plots.comparison, monkeypatch, rows([f"call{k}" for k in range(count)]))
    named = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert sorted(named) == sorted(["han", "MPICH 5"] * (1 + (count == 4)))
    assert not figure.legends


def test_no_text_is_smaller_than_what_can_be_read_on_half_a_page(monkeypatch):
    panel = Panel("a", "bytes", {"tuned": {8: 1.0, 64: 2.0}, "built-in": {8: 1.0, 64: 3.0}})
    for figure in (
        figure_of(plots.lines, monkeypatch, [panel] * 3),
        figure_of(plots.comparison, monkeypatch, rows(["bcast"])),
    ):
        from matplotlib.text import Text

        shown = [t for t in figure.findobj(Text) if t.get_text() and t.get_visible()]
        assert min(text.get_fontsize() for text in shown) >= SMALL
