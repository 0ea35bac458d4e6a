"""Build the C core; everything else is in pyproject.toml."""

import os
from glob import glob

import numpy
from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "han._native",
            sources=sorted(glob("han/native/**/*.c", recursive=True)),
            depends=sorted(glob("han/native/**/*.h", recursive=True)),
            include_dirs=["han/native", numpy.get_include()],
            extra_compile_args=[
                "-std=c11",
                "-O3",
                "-Wall",
                "-Wextra",
                "-fvisibility=hidden",
                *os.environ.get("HAN_CFLAGS", "").split(),
            ],
            extra_link_args=["-ldl", *os.environ.get("HAN_CFLAGS", "").split()],
        )
    ]
)
