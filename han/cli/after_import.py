"""Call a function right after a module has been imported, before its importer goes on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(name: str, act: Callable[[], None]) -> None:
    """Call `act` once, now if the module `name` is there, else when it is first imported."""
    if name in sys.modules:
        act()
        return
    package = name.rpartition(".")[0]
    if package and importlib.util.find_spec(package) is not None:
        importlib.import_module(package)  # it may add finders, behind which ours must not stand
    sys.meta_path.insert(0, _Finder(name, act))


class _Finder(MetaPathFinder):
    """Finds one module as the other finders do, with another loader."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._act)
        return spec


class _Loader(Loader):
    """Loads a module as `loader` does, and calls `act` afterwards."""

    def __init__(self, loader: Loader, act: Callable[[], None]) -> None:
        self._loader, self._act = loader, act

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._act()
