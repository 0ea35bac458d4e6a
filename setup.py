"""Build the C core and the library that C programs preload; the rest is in pyproject.toml."""

import os
from glob import glob

import numpy
from setuptools import Extension, setup

FLAGS = os.environ.get("HAN_CFLAGS", "").split()
# No compiler fuses operations: all of them give the same bits.
ALWAYS = ["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-fvisibility=hidden"]
DOOR = sorted(glob("han/native/door/*.c"))


def extension(name: str, sources: list[str], *include: str) -> Extension:
    """Describe a shared library of these sources."""
    return Extension(
        name,
        sources=sources,
        depends=sorted(glob("han/native/**/*.h", recursive=True)),
        include_dirs=["han/native", *include],
        extra_compile_args=[*ALWAYS, *FLAGS],
        extra_link_args=["-ldl", *FLAGS],
    )


core = sorted(set(glob("han/native/**/*.c", recursive=True)) - set(DOOR))
setup(
    ext_modules=[
        extension("han._native", core, numpy.get_include()),
        extension("han._door", DOOR),
    ]
)
