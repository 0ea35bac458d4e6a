"""What distributions hold: the sdist all that the README uses, the wheel only what is imported."""

import fcntl
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import setuptools
from processes import python

import han

ROOT = Path(__file__).resolve().parents[2]
NEEDED = 77  # the first setuptools that reads the licence as pyproject.toml states it
LINKED = ("configs", "submodules", "tasks", "tuning")  # han/NAME is a link to NAME

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        int(setuptools.__version__.split(".")[0]) < NEEDED,
        reason=f"the build needs setuptools {NEEDED}, {setuptools.__version__} is installed: "
        "han-collectives[test] has a newer one",
    ),
]


def run(folder, *arguments):
    """Run Python; the build leaves nothing in the checkout, and does not optimise."""
    done = python(*arguments, folder=folder, HAN_CFLAGS="-O0")
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Return the folder of an unpacked source distribution."""
    place = tmp_path_factory.mktemp("sdist")
    with open(ROOT / "setup.py") as lock:  # setuptools gathers the files in one folder of ROOT
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(ROOT, "setup.py", "-q", "egg_info", "--egg-base", place, "sdist", "--dist-dir", place)
    (archive,) = place.glob("*.tar.gz")
    assert archive.name == f"han_collectives-{han.__version__}.tar.gz"
    with tarfile.open(archive) as packed:
        assert not [m.name for m in packed.getmembers() if m.issym() or m.islnk()]
        packed.extractall(place / "unpacked")
    (folder,) = (place / "unpacked").iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Return a wheel that was built from the source distribution."""
    place = tmp_path_factory.mktemp("wheel")
    hook = f"from setuptools import build_meta; build_meta.build_wheel({str(place)!r})"
    run(sdist, "-c", hook)
    (archive,) = place.glob("*.whl")
    assert archive.name.startswith(f"han_collectives-{han.__version__}-")
    with zipfile.ZipFile(archive) as packed:
        yield packed


def committed(*places):
    """Return the files that git tracks there, or the files that are there where git is not used."""
    done = subprocess.run(
        ["git", "ls-files", "--", *places], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 0 and done.stdout:
        return [name for name in done.stdout.splitlines() if not (ROOT / name).is_symlink()]
    found = (path for place in places for path in [ROOT / place, *(ROOT / place).rglob("*")])
    return [
        str(path.relative_to(ROOT))
        for path in found
        if path.is_file() and path.suffix not in (".pyc", ".so")
    ]


def installed(name):
    """Return the name in the package of a file that a link of the package reaches."""
    return f"han/{name}" if name.startswith(LINKED) else name


def test_the_sdist_holds_what_the_commands_of_the_readme_use(sdist):
    names = committed(
        "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "setup.py", ".ci",
        "tests", "examples", "docs", "configs", "han", "packaging",
    )  # fmt: skip
    assert not [name for name in names if not (sdist / name).is_file()]
    linked = committed(*LINKED)
    assert not [name for name in linked if not (sdist / installed(name)).is_file()]
    assert not [*sdist.rglob("__pycache__"), *sdist.rglob("*.so")]


def test_the_wheel_holds_all_modules_and_tells_its_name_its_licence_and_its_extras(wheel):
    holds_all_modules_and_no_other_sources(wheel)
    tells_its_name_its_licence_and_its_extras(wheel)


def holds_all_modules_and_no_other_sources(wheel):
    held = set(wheel.namelist())
    modules = [installed(n) for n in committed("han", *LINKED) if n.endswith((".py", ".yaml"))]
    assert len(modules) > 100
    assert not [name for name in modules if name not in held]
    assert {"han/py.typed", "han/_native.pyi"} <= held
    assert [name for name in held if name.startswith("han/_native.") and name.endswith(".so")]
    sources = {name for name in held if name.endswith((".c", ".h"))}
    assert sources == {"han/measure/bench.c"}, "which han bench-c compiles"
    assert [name for name in held if name.startswith("han/_door.") and name.endswith(".so")]
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == {"han"}


def tells_its_name_its_licence_and_its_extras(wheel):
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    about = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert about["Name"] == "han-collectives"
    assert about["Version"] == han.__version__
    assert about["License-Expression"] == "BSD-3-Clause"
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    assert {"plot", "examples", "test", "lint"} <= set(about.get_all("Provides-Extra"))
    for need in about.get_all("Requires-Dist"):
        assert not need.startswith(("han[", "han ")), "extras name the distribution"
    assert b"han = han.cli.main:main" in wheel.read(f"{info}/entry_points.txt")


def test_the_versions_of_package_and_distribution_agree():
    assert f'version = "{han.__version__}"' in (ROOT / "pyproject.toml").read_text()
