"""JSON Schemas of configurations and machines: the committed ones are those of the models."""

import json
from pathlib import Path

import pytest
import yaml
from commands import call

from han.config.config import load_config
from han.config.documents import schema
from han.config.machine import load_machine
from han.config.source import READY
from han.submodules.registry import registered

jsonschema = pytest.importorskip(
    "jsonschema", reason="jsonschema is not installed: han-collectives[test] has it"
)

CONFIGS = sorted(READY.glob("*.yaml"))
MACHINES = sorted((READY / "machines").glob("*.yaml"))
KINDS = {"config": CONFIGS, "machine": MACHINES}
ALL = {"name": "network", "scope": "all"}
MACHINE = {
    "about": "one", "levels": [{"name": "node", "latency": "1us", "bandwidth": "1GB/s"}],
    "node": {"level": "node", "copy": "1GB/s", "reduce": "1GB/s", "memory": "1GB/s",
             "injection": "1Gbit/s"},
}  # fmt: skip


def problems(kind, data):
    validator = jsonschema.Draft202012Validator(schema(kind))
    return [error.message for error in validator.iter_errors(data)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_schema_is_that_of_the_models(kind):
    committed = json.loads((READY / "schema" / f"{kind}.json").read_text())
    assert committed == schema(kind, registered()), f"han schema {kind} --out ..."
    jsonschema.Draft202012Validator.check_schema(committed)


@pytest.mark.parametrize("path", [*CONFIGS, *MACHINES], ids=lambda path: path.stem)
def test_ready_files_are_valid_and_name_their_schema(path):
    kind = "config" if path in CONFIGS else "machine"
    first, _, _ = path.read_text().partition("\n")
    named = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    assert named.resolve() == (READY / "schema" / f"{kind}.json").resolve()
    assert problems(kind, yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    "data",
    [
        {"memory": "64KiB"},
        {"memory": 65536},
        {"levels": [{"name": "node", "scope": {"size": 2}}, ALL]},
        {"levels": [{"name": "rack", "scope": {"hosts": {"a": ["n1", "n2"]}}}, ALL]},
        {"levels": [{"name": "rack", "scope": {"regex": "r([0-9]+)"}}, ALL]},
        {"rules": [{"use": {"segment": "whole"}}, {"use": {"segment": "1.5MiB"}}]},
        {"rules": [{"when": {"collective": "bcast", "bytes": {"min": "1 MB"}}, "use": {}}]},
        {"rules": [{"when": {"collective": ["bcast", "reduce"], "ppn": {"max": 4}}, "use": {}}]},
        {
            "wait": {"policy": "futex", "timeout": 2.5, "progress": "off"},
            "check": True,
            "trials": False,
            "reproducible": True,
            "rules": [{"use": {"reproducible": False}}],
            "tuned": "mine.json",
        },
    ],
    ids=str,
)
def test_what_han_reads_is_valid(data):
    load_config(data, {})
    assert problems("config", data) == []


@pytest.mark.parametrize(
    "data",
    [
        {"levles": []},
        {"levels": []},
        {"levels": [{"name": "node"}]},
        {"levels": [{"name": "no name", "scope": "all"}]},
        {"levels": [{"name": "node", "scope": "cabinet"}]},
        {"memory": "64 apples"},
        {"check": "yes"},
        {"rules": [{"when": {"collective": "alltoallw"}, "use": {}}]},
        {"rules": [{"when": {}}]},
        {"rules": [{"use": {"segment": 0}}]},
        {"rules": [{"use": {"levels": {"node": {"algorithm": "flat"}}}}]},
        {"wait": {"policy": "patient"}},
    ],
    ids=str,
)
def test_what_han_refuses_is_not_valid(data):
    with pytest.raises(ValueError, match=r"."):
        load_config(data, {})
    assert problems("config", data)


def test_machines_have_units():
    load_machine(MACHINE)
    assert problems("machine", MACHINE) == []
    wrong = {**MACHINE, "node": {**MACHINE["node"], "copy": 1e9}}
    assert problems("machine", wrong)
    with pytest.raises(ValueError, match="is not a rate"):
        load_machine(wrong)


def test_every_key_is_described():
    for kind in KINDS:
        found = schema(kind)
        for name, model in {kind: found, **found["$defs"]}.items():
            lacking = [k for k, v in model["properties"].items() if "description" not in v]
            assert not lacking, f"{name}: {lacking}"


def test_the_command_prints_and_writes(tmp_path):
    assert json.loads(call("schema"))["title"] == "Configuration of han"
    path = tmp_path / "machine.json"
    written = call("schema", "machine", "--out", path)
    assert written.endswith("# yaml-language-server: $schema=machine.json\n")
    assert json.loads(path.read_text()) == json.loads(call("schema", "machine"))
    assert "# yaml-language-server: $schema=" in call("schema", "--help")
    assert Path(path).read_text().endswith("}\n")
