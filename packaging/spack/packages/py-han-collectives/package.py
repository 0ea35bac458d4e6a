# SPDX-License-Identifier: BSD-3-Clause

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyHanCollectives(PythonPackage):
    """Fast hierarchical collective communication for Python programs on MPI."""

    homepage = "https://github.com/han-collectives/han"
    git = "https://github.com/han-collectives/han.git"

    license("BSD-3-Clause")

    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    variant("plot", default=False, description="Draw pictures")

    depends_on("c", type="build")

    depends_on("python@3.10:", type=("build", "link", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-numpy@2.0:", type=("build", "link", "run"))
    depends_on("py-mpi4py@4.0:", type="run")
    depends_on("py-networkx@3.0:", type="run")
    depends_on("py-platformdirs@4:", type="run")
    depends_on("py-pydantic@2.7:", type="run")
    depends_on("py-pyyaml@6.0:", type="run")
    depends_on("py-rich@13:", type="run")
    depends_on("py-typer@0.12:", type="run")
    depends_on("py-matplotlib@3.7:", type="run", when="+plot")
