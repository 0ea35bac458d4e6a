"""``han tune`` as a user calls it: export, report, merge, and a run on one rank."""

import json
import os
import threading
from dataclasses import replace
from functools import partial

import pytest
from commands import call
from commands import refuse as refuse_as
from disks import full_disk
from processes import printed

from han.cli.measuring import tell_alone
from han.cli.tune_quality import FORMAT
from han.cli.tune_run import MOST_TOLD, pruned_list, pruned_text
from han.common.errors import HanError
from han.config import load_config
from han.config.rules import KindUse, LevelUse, Use
from han.measure.tune.quality import PredictedCandidate, QualityRow
from han.ranks.machine import fingerprint
from han.tuning.costs.estimates import Estimate
from han.tuning.search.space import IN_A_ROW, UNFIT, Pruned
from han.tuning.tuned.files import parse, read, write
from han.tuning.tuned.find import find_table
from han.tuning.tuned.points import Candidate, MeasuredCall, Point
from han.tuning.tuned.table import of_points

LEVELS = ("node", "network")
refuse = partial(refuse_as, kind=HanError)


def point(nbytes=1024, us=10.0, collective="allreduce"):
    level = LevelUse("sm", "flat", {"chunk": 4096}, {"reduce": KindUse("kary", {"radix": 2})})
    use = Use("whole", "dataflow", {"node": level})
    timing = Estimate(us * 1e-6, us * 0.9e-6, us * 1.1e-6, 40)
    key = MeasuredCall(collective, "native" if collective == "allreduce" else "", 1, 4, LEVELS)
    slow = replace(timing, median=2 * timing.median, high=2 * timing.high)
    candidates = (Candidate(use, timing, 9e-6), Candidate(Use(levels={}), slow))
    return Point(key, nbytes, False, candidates, slow, slow, "task", "", 2.0, 7)


@pytest.fixture
def tables(tmp_path):
    paths = tmp_path / "monday.json", tmp_path / "tuesday.json"
    write(paths[0], of_points((point(), point(4096)), fingerprint()))
    write(paths[1], of_points((point(us=5.0), point(64, collective="bcast")), fingerprint()))
    return paths


def test_tables_are_merged_and_what_both_measured_is_combined(tables, tmp_path):
    out = tmp_path / "all.json"
    told = call("tune", "merge", str(out), "--table", str(tables[0]), "--table", str(tables[1]))
    assert "differ" not in told
    found = {(p.key.collective, p.nbytes): p.best.median for p in read(out).points}
    assert found == pytest.approx(
        {("allreduce", 1024): 50**0.5 * 1e-6, ("allreduce", 4096): 10e-6, ("bcast", 64): 10e-6}
    )


def test_a_merge_tells_where_runs_contradict_each_other(tables, tmp_path):
    write(tmp_path / "kept.json", of_points((replace(point(), keeps=True),), fingerprint()))
    told = call("tune", "merge", str(tmp_path / "all.json"), "--table", str(tables[0]), "--table",
                str(tmp_path / "kept.json"))  # fmt: skip
    assert "allreduce of 1KiB on 1 x 4: runs differ, node: sm flat" in " ".join(told.split())


def test_tables_of_different_machines_are_not_merged(tables, tmp_path):
    write(tmp_path / "far.json", of_points((point(),), replace(fingerprint(), cores=99)))
    said = refuse("tune", "merge", str(tmp_path / "all.json"), "--table", str(tables[0]),
                  "--table", str(tmp_path / "far.json"))  # fmt: skip
    assert "measured on another machine: cores" in said
    assert not (tmp_path / "all.json").exists()


def test_rules_are_exported_with_what_kinds_run(tables, tmp_path):
    out = tmp_path / "rules.yaml"
    call("tune", "export", str(out), "--table", str(tables[0]))
    assert "reduce:\n          algorithm: kary" in out.read_text()
    assert load_config(out).rules[0].use.levels["node"].kinds["reduce"].algorithm == "kary"


def test_rows_are_exported_and_may_be_named_as_the_table(tables, tmp_path):
    out = tmp_path / "rows.json"
    call("tune", "export", str(out), "--table", str(tables[0]))
    found = find_table(str(out), fingerprint).table
    assert [row.name for row in found.rows] == ["allreduce, 512B to 8KiB, 1 x 4"]
    assert found.rows[0].use.levels["node"].kinds["reduce"].algorithm == "kary"
    call("tune", "report", str(tmp_path / "page.html"), "--table", str(out))
    assert (tmp_path / "page.html").exists()


def test_a_report_is_one_page_that_stands_alone(tables, tmp_path):
    out = tmp_path / "report.html"
    call("tune", "report", str(out), "--table", str(tables[0]))
    page = out.read_text()
    assert page.count("src='data:image/png;base64,") == 4
    assert "http" not in page.replace("http-equiv", "")
    assert "sm flat (chunk 4KiB), reduce: kary (radix 2)" in page
    assert "2.00" in page
    assert "Left out" not in page
    tables[0].with_name("monday.left-out.txt").write_text("no gain expected:\n  a < b: slow\n")
    call("tune", "report", str(out), "--table", str(tables[0]))
    assert "  a &lt; b: slow" in out.read_text()


def test_a_report_has_what_strategies_cost_and_how_good_they_are(tables, tmp_path):
    out, compared = tmp_path / "report.html", tmp_path / "quality.json"
    both = ("exhaustive", "task")
    row = QualityRow("bcast", 1024, 9, dict.fromkeys(both, "node: sm flat"),
              dict.fromkeys(both, 1.0), {"exhaustive": 5.0, "task": 0.5},
              {"exhaustive": 9, "task": 4},
              (PredictedCandidate("node: sm flat", 1e-6, 1.1e-6),))  # fmt: skip
    head = {"format": FORMAT.name, "version": FORMAT.version}
    compared.write_text(json.dumps({**head, "rows": [row.record()]}))
    given = ("tune", "report", str(out), "--table", str(tables[0]), "--quality", str(compared))
    call(*given)
    assert (tmp_path / "report-strategies.png").stat().st_size > 1000
    assert "Strategies beside exhaustive search" in out.read_text()
    for text, said in (
        ("{}", "not a comparison of strategies: its format is not han-tuning-quality"),
        (json.dumps({**head, "rows": []}), "nothing was compared"),
        (json.dumps({**head, "rows": [{}]}), "a damaged comparison"),
        (None, "cannot be read: No such file"),
    ):
        compared.unlink() if text is None else compared.write_text(text)
        assert said in " ".join(refuse(*given).split())


@pytest.mark.parametrize("name", ["all.json", "rules.yaml", "rows.json", "page.html"])
def test_a_full_disk_leaves_the_files_of_before(tables, tmp_path, name):
    action = {"all.json": "merge", "page.html": "report"}.get(name, "export")
    folder = tmp_path / "out"
    folder.mkdir()
    call("tune", action, str(folder / name), "--table", str(tables[0]))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with full_disk(256):
        said = refuse("tune", action, str(folder / name), "--table", str(tables[1]))
    assert "cannot be written: File too large" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_files_that_are_written_keep_their_mode_and_links_their_place(tables, tmp_path):
    out, link = tmp_path / "mine.json", tmp_path / "link.json"
    out.touch(0o600)
    link.symlink_to(out)
    call("tune", "merge", str(link), "--table", str(tables[0]))
    assert link.is_symlink()
    assert out.stat().st_mode & 0o777 == 0o600
    assert len(read(out).points) == 2
    new = tmp_path / "new.json"
    before = os.umask(0o077)
    try:
        call("tune", "merge", str(new), "--table", str(tables[0]))
    finally:
        os.umask(before)
    assert new.stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_to(tables, tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    call("tune", "merge", str(pipe), "--table", str(tables[0]))
    reader.join()
    assert len(parse(found[0], "pipe").points) == 2
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export"], "name the file to write, such as rules.yaml"),
        (["merge"], "name the file to write, such as tuned.json"),
        (["merge", "OUT"], "name the tables to join"),
        (["report", "OUT", "--table", "A", "--table", "B"], "join several with merge first"),
        (["export", "OUT", "--table", "NONE"], "cannot be read: No such file"),
        (["export", "OUT"], "no tuned table of this machine"),
        (["--strategy", "best"], "unknown strategy"),
        (["--strategy", "task,heuristic"], "unknown strategy"),
        (["quality", "--strategy", "task,best"], "unknown strategy"),
        (["quality", "--strategy", "simulate"], "name the machine model with --machine"),
        (["--strategy", "simulate"], "name the machine model with --machine"),
        (["--budget", "soon"], "budget 'soon': expected a time such as 90s"),
        (["quality", "--limit", "soon"], "limit 'soon': expected a time such as 90s"),
        (["barrier"], "barrier carries no data"),
        (["run", "OUT"], "unknown collective"),
        ([], "one rank has no calls to tune"),
    ],
)
def test_what_is_wrong_is_told(tables, tmp_path, arguments, said):
    names = {"OUT": tmp_path / "out", "A": tables[0], "B": tables[1], "NONE": tmp_path / "none"}
    assert said in refuse("tune", *(str(names.get(one, one)) for one in arguments))


def test_a_file_for_run_is_refused_before_mpi_starts():
    code = (
        "import sys; from typer.testing import CliRunner; from han.cli.main import app; "
        "done = CliRunner().invoke(app, ['tune', 'run', 'FILE']); "
        "print(done.exception, 'mpi4py.MPI' in sys.modules)"
    )
    assert printed(code).split("\n")[0].startswith("unknown collective 'FILE'")


def test_a_run_on_one_rank_prints_a_table_and_what_is_left(tmp_path):
    out, kept = tmp_path / "tuned.json", tmp_path / "tuning.json"
    text = call("tune", "bcast", "64", "--budget", "2s", "--out",
                str(out), "--json", str(kept))  # fmt: skip
    assert "geometric mean of gains over the built-in choices" in text
    every, file = json.loads(kept.read_text()), tmp_path / "tuned.left-out.txt"
    assert str(file) in "".join(text.split("\n")), "the summary names the file"
    assert f"#   3 {UNFIT}, such as\n" in text
    assert "null: its results" not in text
    assert all(f"  {one}\n" in file.read_text() for one in every["pruned"]), "nothing is dropped"
    assert "null: its results are wrong by design" in every["pruned"]
    assert every["complete"]
    assert read(out).points[0].key.collective == "bcast"


def test_a_run_on_one_rank_is_told_that_it_needs_peers(capsys):
    tell_alone("han tune")
    assert "start with mpiexec -n 2 han tune" in capsys.readouterr().err


def test_what_was_left_out_is_counted_by_reasons_and_refusals_are_told():
    slow = [Pruned(f"bcast of {k}B: adapt", "1.5 times the built-in choice", IN_A_ROW)
            for k in range(MOST_TOLD + 2)]  # fmt: skip
    pruned = [*(Pruned(f"solo {k}", "no attach") for k in range(100)), *slow]
    text, every = pruned_text(pruned, "here.txt"), pruned_list(pruned)
    assert "listed with reasons in here.txt" in text
    assert f"{len(slow)} {IN_A_ROW}\n#     bcast of 0B: adapt: 1.5 times" in text
    assert "and 2 more" in text
    assert f"100 {UNFIT}, such as\n#     solo 0: no attach" in text
    assert "solo 1:" not in text
    assert all(str(one) in every for one in pruned)


def test_all_that_was_left_out_is_printed_if_it_is_asked_for_or_cannot_be_written(tmp_path):
    run = ["tune", "bcast", "64", "--budget", "1s", "--out",
           str(tmp_path / "tuned.json")]  # fmt: skip
    file = tmp_path / "tuned.left-out.txt"
    for more in (["--verbose"], []):
        text = " ".join(call(*run, *more).split())
        assert "null: its results are wrong by design" in text
        assert "mpi: it may block, so calls could not be looked up by their shape alone" in text
        if file.is_file():
            file.unlink()
            file.mkdir()
    assert "tuned.left-out.txt: cannot be written" in text
