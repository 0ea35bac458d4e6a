"""The recipes for Spack and conda state what pyproject.toml states."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: pytest brings tomli
    import tomli as tomllib  # type: ignore

ROOT = Path(__file__).resolve().parents[2]
CONDA = ROOT / "packaging" / "conda" / "recipe.yaml"
SPACK = ROOT / "packaging" / "spack" / "packages" / "py-han-collectives" / "package.py"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
ABOUT = PROJECT["project"]
NEED = re.compile(r"([\w-]+) ?(?:>=|@)([\d.]+):?")


def needs(texts: list[str]) -> dict[str, str]:
    """Return the oldest version of each requirement, by its name in small letters."""
    found = [NEED.fullmatch(text) for text in texts]
    return {m[1].lower().removeprefix("py-"): m[2] for m in found if m}


PYTHON = {"python": ABOUT["requires-python"].removeprefix(">=")}
TO_RUN = {**PYTHON, **needs(ABOUT["dependencies"])}
TO_BUILD = needs(PROJECT["build-system"]["requires"])


def spack_calls(name: str) -> list[ast.Call]:
    nodes = (node for node in ast.walk(ast.parse(SPACK.read_text())) if isinstance(node, ast.Call))
    return [node for node in nodes if isinstance(node.func, ast.Name) and node.func.id == name]


def words(node: ast.AST) -> list[str]:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]


def test_conda_needs_what_the_project_needs() -> None:
    recipe = yaml.safe_load(CONDA.read_text())
    assert needs(recipe["requirements"]["run"]) == TO_RUN
    assert needs(recipe["requirements"]["host"]) == {**PYTHON, **TO_BUILD}
    assert recipe["context"]["version"] == ABOUT["version"]
    assert recipe["package"]["name"] == ABOUT["name"]
    assert recipe["about"]["summary"] == ABOUT["description"]
    assert recipe["about"]["license"] == ABOUT["license"]
    assert recipe["about"]["homepage"] == ABOUT["urls"]["Homepage"]


def test_spack_needs_what_the_project_needs() -> None:
    """One NumPy serves for building and running, so it is the newer one of both."""
    calls = [words(call) for call in spack_calls("depends_on")]
    running = needs([w[0] for w in calls if "run" in w and "+plot" not in w])
    assert running == {**TO_RUN, "numpy": TO_BUILD["numpy"]}
    building = needs([w[0] for w in calls if "build" in w])
    assert building == {**PYTHON, **TO_BUILD}
    assert needs([w[0] for w in calls if "+plot" in w]) == needs(
        ABOUT["optional-dependencies"]["plot"]
    )


def test_spack_tells_version_licence_and_description() -> None:
    assert f"v{ABOUT['version']}" in [w for call in spack_calls("version") for w in words(call)]
    assert [words(call)[-1] for call in spack_calls("license")] == [ABOUT["license"]]
    (package,) = (n for n in ast.parse(SPACK.read_text()).body if isinstance(n, ast.ClassDef))
    assert ast.get_docstring(package) == f"{ABOUT['description']}."
    assert f'homepage = "{ABOUT["urls"]["Homepage"]}"' in SPACK.read_text()


def test_conda_renders_the_recipe() -> None:
    """Rendering refuses unknown keys and wrong types."""
    conda = pytest.importorskip("rattler_build")
    variants = {"python": ["3.10"], "c_compiler": ["gcc"], "c_stdlib": ["sysroot"]}
    recipe = conda.Stage0Recipe.from_file(CONDA)
    (rendered,) = recipe.render(conda.VariantConfig(variants))
    assert rendered.recipe.package.version == ABOUT["version"]
