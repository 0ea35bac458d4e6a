"""Rules that can serve no call: errors with file, line and numbers when a configuration is read."""

import pytest

from han.common.errors import ConfigError
from han.config.config import load_config
from han.submodules.names import validate_names

LEVELS = """\
levels:
  - {name: node, symbol: s, scope: shared_memory}
  - {name: network, symbol: i, scope: all}
rules:
"""
EXCHANGE = "{levels: {network: {submodule: exchange, algorithm: %s, factors: %s}}}"
SHARES = "{composition: lanes, levels: {node: {submodule: sm, algorithm: shares, lanes: 8}}}"


def read(tmp_path, *rules):
    file = tmp_path / "rules.yaml"
    lines = [f"  - {{when: {when}, use: {use}}}\n" for when, use in rules]
    file.write_text(LEVELS + "".join(lines))
    return validate_names(load_config(str(file)))


@pytest.mark.parametrize(
    ("when", "use", "expected"),
    [
        (
            "{}",
            EXCHANGE % ("recursive", "[2, -2]"),
            "2x-2: the negative ones, which reduce-scatter",
        ),
        ("{}", EXCHANGE % ("recursive", "[-4, 2]"), "their product must be 4; take -4x2x4"),
        ("{}", EXCHANGE % ("tree", "[-2, 3, 2]"), "3 would combine without splitting"),
        ("{}", EXCHANGE % ("copyin", "[-3, 3]"), "its factors allgather: positive"),
        ("{}", EXCHANGE % ("halving", "[2, 2]"), "halving has factors of its own: leave factors"),
        ("{collective: bcast}", "{composition: nap}", "serves allreduce, barrier; the rule is for"),
        (
            "{collective: barrier}",
            "{composition: ring}",
            "serves bcast, reduce, allreduce; the rule",
        ),
        ("{collective: gather}", "{composition: flat}", "the rule is for gather only"),
        (
            "{ppn: {max: 4}}",
            SHARES,
            "lanes = 8: but the rule is for nodes of at most 4 ranks (ppn)",
        ),
    ],
)
def test_a_rule_that_can_serve_no_call_is_an_error(tmp_path, when, use, expected):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, ("{collective: allreduce}", "{segment: 1MiB}"), (when, use))
    text = str(error.value)
    assert expected in text
    assert "rules.yaml:6: rules[1].use" in text


def test_kinds_of_tasks_have_factors_of_their_own(tmp_path):
    tree = "{submodule: exchange, algorithm: tree, reduce: {factors: [2, -2]}}"
    with pytest.raises(ConfigError, match=r"node\.reduce\.factors: 2x-2: the negative ones"):
        read(tmp_path, ("{}", f"{{levels: {{node: {tree}}}}}"))


NOT_TAKEN = {
    "{submodule: exchange, algorithm: tree, writes: true}": (
        "node.writes: tree does not take writes; it takes segment, factors, partition, chunk, whole"
    ),
    "{submodule: exchange, algorithm: copyin, arrays: false}": (
        "node.arrays: copyin does not take arrays; it takes segment, factors"
    ),
    "{submodule: exchange, algorithm: cyclic, whole: 64}": (
        "node.whole: cyclic does not take whole; it takes segment"
    ),
    "{submodule: sm, algorithm: direct, chunk: 64}": (
        "node.chunk: direct does not take chunk; it takes no parameters"
    ),
    "{submodule: exchange, algorithm: tree, bcast: {algorithm: scatter, inner: 2}}": (
        "node.bcast.inner: scatter does not take inner; it takes segment, factors, partition, ports"
    ),
    "{submodule: solo, algorithm: pull, bcast: {algorithm: meet}, reduce: {algorithm: split,"
    " tree: flat}}": "node.reduce.tree: split does not take tree; it takes chunk, block",
}


@pytest.mark.parametrize("use", NOT_TAKEN)
def test_a_parameter_that_an_algorithm_does_not_read_is_an_error(tmp_path, use):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, ("{}", f"{{levels: {{node: {use}}}}}"))
    assert f"rules.yaml:5: rules[0].use.levels.{NOT_TAKEN[use]}" in str(error.value)


@pytest.mark.parametrize(
    ("when", "use"),
    [
        ("{}", "{levels: {node: {submodule: sm, chunk: 1MiB}}}"),
        ("{}", "{levels: {node: {submodule: sm, algorithm: kary, inline: false}}}"),
        ("{collective: [bcast, allreduce]}", "{composition: nap}"),
        ("{}", "{composition: nap}"),
        ("{}", EXCHANGE % ("recursive", "[-4, -3, 3, 4]")),
        ("{ppn: {min: 2, max: 8}}", SHARES),
        ("{ppn: {min: 2}}", SHARES),
    ],
)
def test_a_rule_that_some_call_on_some_machine_may_take_is_none(tmp_path, when, use):
    assert len(read(tmp_path, (when, use)).rules) == 1
