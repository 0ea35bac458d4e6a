"""Build the C core and the library that C programs preload; the rest is in pyproject.toml."""

import os
import subprocess
from glob import glob

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FLAGS = os.environ.get("HAN_CFLAGS", "").split()
# No compiler fuses operations: all of them give the same bits.
ALWAYS = ["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-fvisibility=hidden"]
# GCC on x86 clears a structure of 48 bytes or more by an instruction that takes as long as the
# rest of a short call. Other compilers do not have this option, nor the need of it.
IF_KNOWN = ["-mmemset-strategy=unrolled_loop:512:noalign,libcall:-1:noalign"]
DOOR = sorted(glob("han/native/door/*.c"))


class Build(build_ext):
    """Build with those of the flags IF_KNOWN that the compiler has."""

    def build_extensions(self) -> None:
        """Build all."""
        known = [*filter(self.knows, IF_KNOWN)]
        for one in self.extensions:
            one.extra_compile_args[:0] = known  # before flags of the user
        super().build_extensions()

    def knows(self, flag: str) -> bool:
        """Ask the compiler; whether there is one turns out later."""
        nothing = [flag, "-fsyntax-only", "-x", "c", os.devnull]
        try:
            asked = subprocess.run([*self.compiler.compiler_so, *nothing], capture_output=True)
        except OSError:
            return False
        return asked.returncode == 0


def extension(
    name: str, sources: list[str], *include: str, flags: tuple[str, ...] = ()
) -> Extension:
    """Describe a shared library of these sources."""
    return Extension(
        name,
        sources=sources,
        depends=sorted(glob("han/native/**/*.h", recursive=True)),
        include_dirs=["han/native", *include],
        extra_compile_args=[*ALWAYS, *flags, *FLAGS],
        extra_link_args=["-ldl", *FLAGS],
    )


core = sorted(set(glob("han/native/**/*.c", recursive=True)) - set(DOOR))
setup(
    ext_modules=[
        extension("han._native", core, numpy.get_include()),
        # Loaded as the program starts, so that its threads' variables have fixed places.
        extension("han._door", DOOR, flags=("-ftls-model=initial-exec",)),
    ],
    cmdclass={"build_ext": Build},
)
