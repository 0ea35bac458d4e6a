import dataclasses
import pickle
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from processes import printed

from han.common.errors import ConfigError, HanError
from han.common.units import format_size, parse_size
from han.config import documents, parts, rules
from han.config.config import Config, default_config, load_config
from han.config.parameters import Parameter
from han.config.parts import HostsScope, Level, RegexScope, SizeScope
from han.config.rc import SETTINGS, VARIABLES, rc
from han.config.source import ready_configs
from han.explain import make_signature
from han.model.collectives import COLLECTIVES
from han.model.facts import Facts
from han.submodules.names import validate_names
from han.submodules.null import Null
from han.tasks.contract import Algorithm

FULL = """\
levels:
  - {name: node, scope: shared_memory}
  - {name: network, scope: all}
rules:
  - when:
      collective: [bcast, allreduce]
      bytes: {min: 0, max: 64KiB}
      nodes: {min: 2}
      ppn: {max: 8}
      commutative: true
    use:
      segment: 64KiB
      schedule: dataflow
      levels:
        node: {submodule: sm, algorithm: flat, radix: 4, cells: 4, chunk: 64KiB, inline: true}
        network: {submodule: adapt, algorithm: chain, radix: 2, segment: 32KiB, window: 8}
  - use: {segment: whole}
memory: 32MiB
wait: {policy: spin, spin: 50, timeout: 2.5}
check: true
"""


def part(name, algorithms=(), **parameters):
    """Return a submodule that configurations may name."""
    found = Null()
    found.name, found.parameters = name, parameters
    found.algorithms = {algorithm: Algorithm("") for algorithm in algorithms}
    return found


PARTS = (
    part(
        "sm",
        ("flat", "tree"),
        radix=Parameter("int", "", 2, 64),
        cells=Parameter("int", "", 1),
        chunk=Parameter("size", "", 64, 2**20),
        inline=Parameter("bool", "", joint=True),
        skew=Parameter("name", "", choices=("left", "right")),
    ),
    part(
        "adapt",
        ("chain", "binomial"),
        radix=Parameter("int", "", 1),
        segment=Parameter("size", "", 1),
        window=Parameter("int", "", 1),
    ),
    part(
        "exchange",
        ("recursive", "cyclic"),
        factors=Parameter("factors", "", 2),
        partition=Parameter("size", ""),
    ),
    part("mpi"),
    part("libnbc"),
)


@pytest.fixture
def some_parts(monkeypatch):
    """Let only some submodules be there."""
    parts = {one.name: one for one in PARTS}
    monkeypatch.setattr("han.submodules.names.registered", lambda: parts)


@pytest.fixture(autouse=True)
def _fresh_rc(monkeypatch):
    for name in SETTINGS:
        monkeypatch.setattr(rc, name, None)


@pytest.fixture
def write(tmp_path):
    def write(text, name="cluster.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def load(source=None, environ=None):
    return load_config(source, environ or {})


def message(source=None, environ=None):
    with pytest.raises(ConfigError) as caught:
        load(source, environ)
    return str(caught.value)


def use(**level):
    """A configuration with one rule, which sets ``level`` for the level ``node``."""
    return {"rules": [{"use": {"levels": {"node": level}}}]}


# Sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64KiB", 65536),
        ("4MiB", 4 * 2**20),
        ("1GiB", 2**30),
        ("64kB", 64000),
        ("64 KB", 64000),
        ("2MB", 2_000_000),
        ("1GB", 10**9),
        ("512B", 512),
        ("512", 512),
        ("1.5KiB", 1536),
        ("3 kib", 3072),
        (7, 7),
        (0, 0),
    ],
)
def test_a_size_is_parsed(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["64k", "64K", "", "KiB", "-1", -1, "1e3", "0.3B", 1.0, True, None, [], "٣KiB", 2**63]
)
def test_what_is_no_size_is_refused_with_the_text_and_examples(text):
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not a size")) as caught:
        parse_size(text)
    assert "64KiB, 4MiB, 1GiB" in str(caught.value)


@given(st.integers(0, 2**63 - 1))
def test_a_formatted_size_parses_to_itself(size):
    assert parse_size(format_size(size)) == size


@given(st.integers(1, 1023), st.sampled_from(["KiB", "MiB", "GiB"]))
def test_whole_binary_units_are_formatted_as_written(number, unit):
    assert format_size(parse_size(f"{number}{unit}")) == f"{number}{unit}"


# Ready configurations, defaults, round trips


@pytest.mark.parametrize("name", ready_configs())
def test_a_ready_configuration_loads_by_name_and_survives_yaml(name):
    config = validate_names(load(name))
    assert load(yaml.safe_load(config.to_yaml())) == config
    assert ready_configs()[name].read_text().startswith("# ")
    assert config.source.endswith(f"{name}.yaml")


def test_ready_configurations_have_the_levels_that_they_are_for():
    scopes = {name: [level.scope for level in load(name).levels] for name in ready_configs()}
    sizes = [SizeScope(size=2), SizeScope(size=4), SizeScope(size=8)]
    switch = RegexScope(regex=r"^(r\d+)n\d+")
    assert scopes == {
        "two-level": ["shared_memory", "all"],
        "flat": ["all"],
        "one-node": ["all"],
        "exchange-node": ["all"],
        "exchange-socket": ["socket", "shared_memory", "all"],
        "exchange-two-sockets": ["all"],
        "virtual-2x2": [SizeScope(size=2), "all"],
        "socket-node-network": ["socket", "shared_memory", "all"],
        "numa": ["numa", "shared_memory", "all"],
        "four-levels-virtual": [*sizes, "all"],
        "lockstep": ["shared_memory", "all"],
        "mpi-baseline": ["all"],
        "libnbc": ["shared_memory", "all"],
        "l3-socket-node-network": ["l3", "socket", "shared_memory", "all"],
        "node-switch-network": ["shared_memory", switch, "all"],
        "numa-socket-node-switch-network": ["numa", "socket", "shared_memory", switch, "all"],
        "two-rails": ["shared_memory", "all"],
    }
    assert load("lockstep").rules[0].use.schedule == "lockstep"
    assert load("mpi-baseline").rules[0].use.levels["network"].submodule == "mpi"
    assert load("libnbc").rules[0].use.levels["network"].submodule == "libnbc"


def test_the_default_is_two_levels_and_no_rules(write):
    config = default_config()
    assert [(x.name, x.symbol, x.scope) for x in config.levels] == [
        ("node", "s", "shared_memory"),
        ("network", "i", "all"),
    ]
    assert (config.rules, config.memory, config.check) == ((), 16 * 2**20, False)
    assert (config.wait.policy, config.wait.spin, config.wait.timeout) == ("auto", 1000, 600)
    assert load() == config == load("two-level")
    assert load(write("# nothing yet\n")) == config
    assert load().source == "default configuration"


def test_a_full_file_is_read_and_survives_yaml(write):
    config = load(write(FULL))
    rule = config.rules[0]
    assert rule.when.collective == ("bcast", "allreduce")
    assert rule.when.ends("bytes") == (0, 65536)
    assert (rule.use.segment, config.rules[1].use.segment) == (65536, "whole")
    assert dict(rule.use.levels["node"].parameters)["chunk"] == "64KiB"
    assert config.memory == 32 * 2**20
    assert load(yaml.safe_load(config.to_yaml())) == config
    assert load(write(config.to_yaml(), "again.yaml")) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_configuration_comes_back_as_it_is():
    config = load({"check": True})
    assert load(config, {"HAN_CHECK": "0"}) is config


def test_a_configuration_cannot_be_changed():
    with pytest.raises(AttributeError, match="cannot assign"):
        default_config().check = True


def test_plain_data_has_the_fields_and_defaults_of_the_documents():
    conditions = {documents.When, documents.Bytes, documents.Count}
    plain = {*documents.MODELS.values()} - conditions
    for document in {*plain, documents.LevelUse, documents.KindUse}:
        name = document.__name__
        data = (
            Config if name == "Config" else getattr(parts if hasattr(parts, name) else rules, name)
        )
        own = {f.name: f for f in dataclasses.fields(data) if f.compare}
        fields = set(document.model_fields) - set(rules.KINDS)
        assert set(own) - {"parameters", "kinds"} == fields, name
        given = {f: "x" for f, info in document.model_fields.items() if info.is_required()}
        made = documents.values_of(document.model_construct(**given))
        assert {f: made[f] for f in fields} == {f: getattr(data(**given), f) for f in fields}, name


def test_parts_that_do_not_fit_together_are_refused_without_a_document_too():
    with pytest.raises(ConfigError, match="needs at least one level"):
        Config(levels=())
    with pytest.raises(ConfigError, match="must have 'all'"):
        Config(levels=(Level("node", "shared_memory"),))


def test_where_a_value_was_written_is_known(write):
    path = write(FULL)
    config = load(path, {"HAN_SPIN": "7"})
    assert config.place("rules", 1) == f"{path}:17"
    assert config.place("rules", 0, "use", "levels", "node", "radix") == f"{path}:15"
    assert config.place("wait", "spin").startswith("environment variable HAN_SPIN")


# Levels


def symbols(*levels):
    return "".join(level.symbol for level in load({"levels": list(levels)}).levels)


def test_levels_without_a_symbol_get_a_free_letter():
    pair = {"name": "pair", "scope": {"size": 2}}
    socket = {"name": "socket", "scope": "socket"}
    node = {"name": "node", "scope": "shared_memory"}
    network = {"name": "network", "scope": "all"}
    assert symbols(network) == "i"
    assert symbols(node, network) == "si"
    assert symbols(socket, node, network) == "sni"
    assert symbols(pair, socket, node, network) == "soni"
    assert symbols(node | {"symbol": "i"}, network) == "in"
    assert symbols(socket, node | {"symbol": "s"}, network) == "osi"
    assert len(symbols(*levels_of(8))) == 8


def test_scopes_with_groups_are_read():
    racks = {"hosts": {"a": ["n1", "n2"], "b": ["n3"]}}
    levels = [
        {"name": "node", "scope": "shared_memory"},
        {"name": "rack", "scope": racks},
        {"name": "row", "scope": {"regex": r"(row\d+)-"}},
        {"name": "network", "scope": "all"},
    ]
    _, rack, row, _ = load({"levels": levels}).levels
    assert isinstance(rack.scope, HostsScope)
    assert rack.scope.hosts == {"a": ("n1", "n2"), "b": ("n3",)}
    assert row.scope == RegexScope(regex=r"(row\d+)-")


def levels_of(depth):
    inner = [{"name": f"a{k}", "scope": {"size": 2 << k}} for k in range(depth - 1)]
    return [*inner, {"name": "network", "scope": "all"}]


LEVELS = [
    ([], "levels = []: needs at least one level"),
    ([{"scope": "all"}], "levels[0].name: is missing"),
    ([{"name": "a b", "scope": "all"}], "levels[0].name = 'a b': expected an identifier"),
    ([{"name": "a", "symbol": "ab", "scope": "all"}], "symbol = 'ab': expected one letter"),
    (["node"], "levels[0] = 'node': expected a mapping"),
    ({"node": 1}, "levels = {'node': 1}: expected a list"),
    ([{"name": "a", "scope": "al"}], "unknown scope; did you mean 'all'? Known: all, l3, numa"),
    ([{"name": "a", "scope": {"sise": 2}}], "unknown scope. Known: all, l3"),
    ([{"name": "a", "scope": 3}], "levels[0].scope = 3: unknown scope. Known: all, l3"),
    ([{"name": "a", "scope": {"size": 0}}], "levels[0].scope.size = 0: must be at least 1"),
    ([{"name": "a", "scope": {"regex": "("}}], "is not a regular expression: missing )"),
    ([{"name": "a", "scope": {"hosts": {"r": ["n"], "q": ["n"]}}}], "host 'n' is in 'r' and in"),
    ([{"name": "a", "scope": {"hosts": {"r": []}}}], "scope.hosts.r = []: must not be empty"),
    ([{"name": "a", "scope": {"size": 2, "of": 1}}], "scope.of: unknown key. Known: size"),
    ([{"name": "a", "scope": "numa"}], "scope = 'numa': the outermost level, written last"),
    ([{"name": "a", "scope": {"size": 2}}], "scope = {'size': 2}: the outermost level"),
    (
        [{"name": "a", "scope": "all"}, {"name": "b", "scope": "numa"}],
        "levels[0].scope = 'all': only the outermost level",
    ),
    (
        [
            {"name": "a", "scope": "shared_memory"},
            {"name": "b", "scope": "numa"},
            {"name": "c", "scope": "all"},
        ],
        "levels[1].scope = 'numa': lies inside a level before it; write the innermost first",
    ),
    (
        [
            {"name": "a", "scope": {"size": 4}},
            {"name": "b", "scope": {"size": 4}},
            {"name": "c", "scope": "all"},
        ],
        "levels[1].scope.size = 4: must be larger than the 4 of a level inside it",
    ),
    (
        [{"name": "a", "scope": "numa"}, {"name": "a", "scope": "all"}],
        "levels[1].name = 'a': is taken by another level",
    ),
    (
        [
            {"name": "a", "symbol": "i", "scope": "numa"},
            {"name": "b", "symbol": "i", "scope": "all"},
        ],
        "levels[1].symbol = 'i': is taken by another level",
    ),
    (levels_of(9), "9 levels, at most 8"),
]


@pytest.mark.parametrize(("levels", "expected"), LEVELS)
def test_wrong_levels_are_told(levels, expected):
    assert expected in message({"levels": levels})


# Other values


WRONG = [
    ({"chek": True}, "config: chek: unknown key; did you mean 'check'? Known: check, levels"),
    ({"check": 1}, "check = 1: expected true or false"),
    ({"memory": "16 Mb/s"}, "memory: '16 Mb/s' is not a size in bytes; write 64KiB"),
    ({"memory": 100}, "memory = 100: must be at least 4096"),
    ({"wait": {"policy": "spinn"}}, "unknown policy; did you mean 'spin'? Known: auto, futex"),
    ({"wait": {"spin": 1.5}}, "wait.spin = 1.5: expected a whole number"),
    ({"wait": {"timeout": -1}}, "wait.timeout = -1: must be at least 0"),
    ({"wait": {"timeout": float("inf")}}, "wait.timeout = inf: expected a finite number"),
    ({"wait": {"tiemout": 1}}, "wait.tiemout: unknown key; did you mean 'timeout'? Known: policy"),
    ({"wait": None}, "wait is empty: expected a mapping"),
    ({"rules": None}, "rules is empty: expected a list"),
    ({"rules": [{"when": {}}]}, "rules[0].use: is missing"),
    ({"rules": [{"wen": {}, "use": {}}]}, "rules[0].wen: unknown key; did you mean 'when'?"),
    ({7: 8}, "expected a key that is text"),
]
WHEN = [
    ({"collective": "allredcue"}, "unknown collective; did you mean 'allreduce'? Known: allgather"),
    ({"collective": []}, "rules[0].when.collective = []: must not be empty"),
    *(
        (
            {"collective": written},
            f"unknown collective; write {name!r} for calls of {method}. Known:",
        )
        for written, name, method in (
            ("allgatherv", "allgather", "Allgatherv"),
            ("reduce_scatter_block", "reduce_scatter", "Reduce_scatter_block"),
            ("Iallgatherv", "allgather", "Iallgatherv"),
            ("ibcast", "bcast", "Ibcast"),
            ("Reduce_init", "reduce", "Reduce_init"),
            ("Allreduce", "allreduce", "Allreduce"),
            ("Gatherv", "gatherv", "Gatherv"),
            ("ineighbor_alltoallw", "alltoallv", "Ineighbor_alltoallw"),
        )
    ),
    ({"bytes": {"min": "2KiB", "max": "1KiB"}}, "min 2048 is larger than max 1024"),
    ({"bytes": {"mini": 1}}, "when.bytes.mini: unknown key; did you mean 'min'? Known: max, min"),
    ({"nodes": {"min": "two"}}, "rules[0].when.nodes.min = 'two': expected a whole number"),
    ({"nodes": {"mix": 2}}, "when.nodes.mix: unknown key"),
    ({"ppn": {"mox": 2}}, "when.ppn.mox: unknown key"),
    ({"ppn": {"min": -1}}, "rules[0].when.ppn.min = -1: must be at least 0"),
    ({"commutative": "yes"}, "rules[0].when.commutative = 'yes': expected true or false"),
    ({"size": 3}, "rules[0].when.size: unknown key. Known: attach, bytes, collective"),
    ({"rnaks": {"min": 2}}, "rules[0].when.rnaks: unknown key; did you mean 'ranks'?"),
    ({"ranks": 2}, "rules[0].when.ranks = 2: expected a mapping (key: value)"),
    ({"ranks": {"least": 2}}, "when.ranks.least: unknown key. Known: max, min"),
    ({"share": {"min": "much"}}, "when.share.min: 'much' is not a size in bytes"),
    ({"mesh": 1}, "rules[0].when.mesh = 1: expected true or false"),
    ({"outermost": True}, "rules[0].when.outermost: tests one level, and a rule is for a whole"),
    ({"composition": "nap"}, "when.composition: is what a rule decides: write it in use"),
]
USE = [
    ({"segment": "hole"}, "rules[0].use.segment: 'hole' is not a size in bytes"),
    ({"segment": 0}, "rules[0].use.segment = 0: a segment has at least 1 byte; write 'whole'"),
    ({"schedule": "lock"}, "unknown schedule; did you mean 'lockstep'? Known: dataflow, lockstep"),
    ({"segmnt": 1}, "rules[0].use.segmnt: unknown key; did you mean 'segment'?"),
    (
        {"levels": {"nod": {"submodule": "sm"}}},
        "rules[0].use.levels.nod: unknown level; did you mean 'node'? Known: network, node",
    ),
    ({"levels": {"node": {"radix": 4}}}, "rules[0].use.levels.node.submodule: is missing"),
    (
        {"levels": {"node": {"submodul": "sm"}}},
        "node.submodule: is missing; 'submodul' is there: did you mean 'submodule'?",
    ),
    ({"levels": {"node": "sm"}}, "rules[0].use.levels.node = 'sm': expected a mapping"),
    (
        {"levels": {"node": {"submodule": "sm", "radix": ["4"]}}},
        "node.radix = ['4']: expected a number, a size, true, false, a name or a list of numbers",
    ),
]
WRONG += [({"rules": [{"when": when, "use": {}}]}, text) for when, text in WHEN]
WRONG += [({"rules": [{"use": use}]}, text) for use, text in USE]


@pytest.mark.parametrize(("source", "expected"), WRONG)
def test_a_wrong_value_is_told_with_its_key_and_what_is_known(source, expected):
    assert expected in message(source)


@pytest.mark.parametrize("written", ["allgatherv", "[bcast, allgatherv]"])
def test_a_collective_that_no_call_carries_is_refused(write, written):
    text = message(write(f"rules:\n  - when:\n      collective: {written}\n    use: {{}}\n"))
    known = (
        "allgather, allreduce, alltoall, alltoallv, barrier, bcast, exscan, gather, gatherv, "
        "reduce, reduce_scatter, scan, scatter, scatterv"
    )
    assert re.search(r":3: rules\[0\]\.when\.collective\[\d\] = 'allgatherv': unknown", text)
    assert text.endswith(f"; write 'allgather' for calls of Allgatherv. Known: {known}")


def test_problems_of_a_file_are_listed_together_with_their_lines(write):
    path = write(FULL.replace("64KiB\n", "64k\n").replace("check: true", "chek: true"))
    text = message(path, {"HAN_SPIN": "many"})
    assert text.splitlines()[0] == "3 problems in the configuration:"
    assert f"{path}:12: rules[0].use.segment: '64k' is not a size" in text
    assert f"{path}:20: chek: unknown key; did you mean 'check'?" in text
    assert "environment variable HAN_SPIN (takes polls, 0 or more): wait.spin = 'many'" in text
    assert "pydantic" not in text


def test_one_problem_is_one_line_and_a_han_error(write):
    path = write("levels:\n  - name: node\n    scope: al\n")
    with pytest.raises(HanError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:3: levels[0].scope = 'al': unknown scope;")
    assert caught.value.__suppress_context__


def test_a_missing_key_has_the_line_of_its_parent(write):
    path = write("check: false\nlevels:\n  - name: node\n")
    assert message(path) == f"{path}:3: levels[0].scope: is missing"


# Sources


def test_a_file_that_is_not_there_is_answered_with_the_ready_ones():
    text = message("vrtual-2x2")
    assert "config = 'vrtual-2x2': no such file" in text
    known = "exchange-node, exchange-socket, exchange-two-sockets, flat, four"
    assert f"did you mean 'virtual-2x2'? Known: {known}" in text
    for name in ("nope", "~nobody-here/config.yaml"):
        told = message(None, {"HAN_CONFIG": name})
        assert told.startswith(f"HAN_CONFIG = '{name}': no such file")


def test_what_cannot_be_a_source_is_refused(tmp_path):
    assert "config = 5: expected a file" in message(5)
    assert message(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    path = tmp_path / "image.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in message(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("levels: [", ":1: is not YAML: while parsing a flow node"),
        ("check: true\n\twait: 3", ":2: is not YAML"),
        ("a: 1\n---\nb: 2", "is not YAML: expected a single document"),
        ("check: !!python/object:os.system {}", "is not YAML: could not determine a constructor"),
        ("\x00", "is not YAML"),
        ("check: 2024-99-99", "a value cannot be read: month must be in 1..12"),
        ("wait: &a [*a]", ":1: wait = [[...]]: expected a mapping"),
        ("1: 2", "expected a key that is text"),
        ("- 1\n- 2\n", "[1, 2]: expected a mapping"),
        ("check: true\nmemory: 1MiB\ncheck: false", "check: is written more than once, in lines 1"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(write, text, expected):
    path = write(text)
    assert message(path).startswith(str(path))
    assert expected in message(path)


def test_aliases_may_be_used(write):
    path = write(
        "levels:\n  - &a {name: node, scope: {size: 2}}\n  - <<: *a\n    name: b\n    scope: all\n"
    )
    assert [level.name for level in load(path).levels] == ["node", "b"]


# Precedence


VALUES = {
    "timeout": (("wait", "timeout"), "5", 5.0, 6.0, 7.0),
    "check": (("check",), "yes", True, False, True),
    "trials": (("trials",), "no", False, True, False),
    "tuned": (("tuned",), "off", "off", "auto", "mine.json"),
    "reproducible": (("reproducible",), "on", True, False, True),
    "wait": (("wait", "policy"), "yield", "yield", "sleep", "spin"),
    "progress": (("wait", "progress"), "off", "off", "thread", "auto"),
    "spin": (("wait", "spin"), "5", 5, 6, 7),
    "memory": (("memory",), "5MiB", 5 * 2**20, 6 * 2**20, 7 * 2**20),
    "plans": (("plans",), "5", 5, 6, 7),
}


def at(config, path):
    for key in path:
        config = getattr(config, key)
    return config


def nested(path, value):
    for key in reversed(path):
        value = {key: value}
    return value


@pytest.mark.parametrize("name", VALUES)
def test_argument_comes_before_rc_before_environment_before_file(name, write):
    path, text, in_environ, in_rc, in_file = VALUES[name]
    data = nested(path, in_file)
    file = write(yaml.safe_dump(data))
    environ = {VARIABLES[name]: text}
    assert at(load(file), path) == in_file
    assert at(load(file, environ), path) == in_environ
    assert at(load(None, environ), path) == in_environ
    setattr(rc, name, in_rc)
    assert at(load(file, environ), path) == in_rc
    assert at(load(data, environ), path) == in_file


def test_settings_leave_their_neighbours_alone():
    assert load(None, dict.fromkeys(VARIABLES.values(), "")) == default_config()
    config = load({"wait": {"spin": 5}}, {"HAN_TIMEOUT": "0"})
    assert (config.wait.spin, config.wait.timeout) == (5, 0)


def test_the_source_is_argument_then_rc_then_environment(write):
    environ = {"HAN_CONFIG": "flat"}
    assert load(None, environ) == load("flat")
    rc.config = "numa"
    assert load(None, environ) == load("numa")
    assert load("one-node", environ) == load("one-node")
    rc.config = default_config()
    assert load(None, environ) is rc.config


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("timeout", "soon", "(takes seconds; 0 = never): wait.timeout = 'soon': expected a number"),
        ("timeout", "-1", "wait.timeout = -1: must be at least 0"),
        ("timeout", "nan", "wait.timeout = nan: expected a finite number"),
        ("check", "maybe", "(takes 1, true, yes, on, 0, false, no, off): check = 'maybe'"),
        ("wait", "spinn", "(takes auto, spin, yield, sleep, futex): wait.policy = 'spinn'"),
        ("spin", "1.5", "(takes polls, 0 or more): wait.spin = 1.5: expected a whole number"),
        ("plans", "0", "plans = 0: must be at least 1"),
        ("memory", "64k", "(takes a size such as 16MiB): memory: '64k' is not a size"),
    ],
)
def test_a_bad_setting_is_told_by_who_made_it(name, value, expected):
    text = message(None, {VARIABLES[name]: value})
    assert text.startswith(f"environment variable {VARIABLES[name]} ")
    assert expected in text
    setattr(rc, name, value)
    assert message().startswith(f"han.rc.{name} ")
    assert expected in message()


# han.rc


def test_rc_refuses_unknown_settings_with_the_known_ones():
    expected = "han.rc.timeuot: unknown setting; did you mean 'timeout'? Known: check, config"
    with pytest.raises(AttributeError, match=re.escape(expected)):
        rc.timeuot = 5
    with pytest.raises(ConfigError, match=re.escape(expected)):
        _ = rc.timeuot
    with pytest.raises(ConfigError, match=re.escape(expected)):
        rc(spin=3, timeuot=5)
    assert rc.spin is None


def test_rc_takes_several_settings_and_shows_them():
    rc(spin=3, wait="yield")
    assert (rc.spin, rc.wait) == (3, "yield")
    assert repr(rc) == "han.rc(wait='yield', spin=3)"


def test_rc_and_parameters_are_light():
    imports = "import sys, han.config.rc, han.config.parameters"
    code = f"{imports}; print({{'pydantic', 'yaml'}} & set(sys.modules))"
    assert printed(code) == "set()"


# Rules


def test_a_rule_matches_the_calls_that_it_is_for(write):
    when = load(write(FULL)).rules[0].when
    nothing = Facts(*[0] * len(Facts._fields))
    call = nothing._replace(bytes=65536, nodes=2, ppn=8, commutative=1)
    assert when.matches("bcast", call)
    assert not when.matches("gather", call)
    for key, value in {"bytes": 65537, "nodes": 1, "ppn": 9, "commutative": 0}.items():
        assert not when.matches("bcast", call._replace(**{key: value})), key
    anything = load(write(FULL)).rules[1].when
    assert all(anything.matches(collective, nothing) for collective in COLLECTIVES)


def test_sizes_that_begin_a_rule_follow_from_the_ranks():
    ends = {"min": "1KiB", "max": "4KiB"}
    for key, expected in {
        "bytes": [1024, 4097],
        "share": [8 * 1024, 8 * 4097],
        "link": [7 * 1024, 7 * 4097],
        "total": [128, 513, 16, 65],
        "nodes": [],
    }.items():
        test = {"min": 2} if key == "nodes" else ends
        config = load({"rules": [{"when": {key: test}, "use": {}}]})
        assert list(config.thresholds(8)) == expected, key


def test_rules_take_the_collectives_that_signatures_carry():
    for name in COLLECTIVES:
        rule = load({"rules": [{"when": {"collective": name}, "use": {}}]}).rules[0]
        assert rule.when.collective == (make_signature(name, 64).collective,)


# Fingerprint


def test_the_fingerprint_is_of_what_ranks_must_agree_on(write):
    config = load(write(FULL))
    assert re.fullmatch("[0-9a-f]{64}", config.fingerprint())
    assert config.fingerprint() == load(yaml.safe_load(config.to_yaml())).fingerprint()
    assert config.fingerprint() == load(write(FULL), {"HAN_SPIN": "1"}).fingerprint()
    for name, value in (("HAN_MEMORY", "1MiB"), ("HAN_TRIALS", "0")):
        assert config.fingerprint() != load(write(FULL), {name: value}).fingerprint()
    assert len({load(name).fingerprint() for name in ready_configs()}) == len(ready_configs())


def test_the_fingerprint_does_not_depend_on_the_order_of_keys():
    one, other = use(submodule="sm", radix=2, cells=4), use(cells=4, radix=2, submodule="sm")
    assert load(one).fingerprint() == load(other).fingerprint()


def test_the_fingerprint_is_the_same_in_every_process():
    code = "from han.config import default_config as d; print(d().fingerprint())"
    assert printed(code) == default_config().fingerprint()


# Names of submodules, algorithms and parameters


def test_known_names_pass_and_their_parameters_are_parsed(write, some_parts):
    config = validate_names(load(write(FULL)))
    levels = config.rules[0].use.levels
    assert levels["node"].algorithm == "flat"
    assert levels["node"].parameters == {"radix": 4, "cells": 4, "chunk": 65536, "inline": True}
    assert levels["network"].parameters == {"radix": 2, "segment": 32768, "window": 8}
    assert validate_names(config) == config


def test_a_kind_of_tasks_may_run_otherwise_than_its_level(some_parts):
    own = {"algorithm": "tree", "chunk": "4KiB"}
    config = load(use(submodule="sm", algorithm="flat", reduce=own, bcast={"cells": 2}))
    found = validate_names(config).rules[0].use.levels["node"]
    assert found.kinds == {
        "reduce": rules.KindUse("tree", {"chunk": 4096}), "bcast": rules.KindUse(None, {"cells": 2})
    }  # fmt: skip
    assert load(yaml.safe_load(config.to_yaml())) == config
    with pytest.raises(ConfigError, match="reduce = 'tree': expected a mapping"):
        load(use(submodule="sm", reduce="tree"))


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ({"submodule": "smm"}, "node.submodule = 'smm': unknown submodule; did you mean 'sm'?"),
        ({"submodule": "sm", "algorithm": "flatt"}, "unknown algorithm of sm; did you mean 'flat'"),
        ({"submodule": "mpi", "algorithm": "flat"}, "unknown algorithm of mpi. Known: (none)"),
        (
            {"submodule": "sm", "radx": 4},
            "node.radx: unknown parameter of sm; did you mean 'radix'",
        ),
        (
            {"submodule": "sm", "algoritm": "flat"},
            "node.algoritm: unknown parameter of sm; did you",
        ),
        (
            {"submodule": "sm", "reduce": {"algorithm": "tre"}},
            "node.reduce.algorithm = 'tre': unknown algorithm of sm; did you mean 'tree'?",
        ),
        ({"submodule": "sm", "bcast": {"radx": 4}}, "node.bcast.radx: unknown parameter of sm"),
        ({"submodule": "sm", "reduce": {"submodule": "sm"}}, "reduce.submodule: unknown parameter"),
        ({"submodule": "sm", "reduce": {"radix": 1}}, "node.reduce.radix = 1: must be at least 2"),
        (
            {"submodule": "sm", "reduce": {"inline": False}},
            "node.reduce.inline: is for the level: write it beside reduce",
        ),
        ({"submodule": "sm", "radix": 1}, "node.radix = 1: must be at least 2"),
        ({"submodule": "sm", "radix": 65}, "node.radix = 65: must be at most 64"),
        ({"submodule": "sm", "radix": True}, "node.radix = True: expected a whole number"),
        ({"submodule": "sm", "chunk": "64k"}, "node.chunk: '64k' is not a size in bytes"),
        ({"submodule": "sm", "chunk": "2MiB"}, "node.chunk = '2MiB': must be at most 1MiB"),
        ({"submodule": "sm", "inline": 1}, "node.inline = 1: expected true or false"),
        ({"submodule": "sm", "skew": "lft"}, "unknown name; did you mean 'left'? Known: left"),
        ({"submodule": "sm", "skew": 3}, "node.skew = 3: expected a name"),
        (
            {"submodule": "exchange", "factors": "4,2"},
            "= '4,2': expected factors: a list of whole numbers such as [-2, 2, 2], or -2x2x2",
        ),
        (
            {"submodule": "exchange", "factors": [4, 1]},
            "factors = [4, 1]: must be 2 or more, or -2 or less",
        ),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(level, expected, some_parts):
    with pytest.raises(ConfigError) as caught:
        validate_names(load(use(**level)))
    assert str(caught.value).startswith("config: rules[0].use.levels.node.")
    assert expected in str(caught.value)


def test_unknown_names_have_their_lines(write, some_parts):
    text = FULL.replace("submodule: sm", "submodule: ms").replace("window: 8", "windw: 8")
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        validate_names(load(path))
    assert f"{path}:15: rules[0].use.levels.node.submodule = 'ms'" in str(caught.value)
    assert f"{path}:16: rules[0].use.levels.network.windw: unknown" in str(caught.value)


def test_a_configuration_can_be_made_of_its_parts():
    level = Level(name="world", scope="all")
    assert Config(levels=(level,)).levels[0].symbol == "i"
