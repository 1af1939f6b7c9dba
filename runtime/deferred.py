"""Functions and names of packages that are imported when they are first used, so that help needs no torch."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


def deferred(package: str, module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports the function `name` of a package's module when it is called, and calls it.

    >>> deferred("json", "decoder", "scanstring")('a"', 0)
    ('a', 2)
    """

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(f".{module}", package), name)(*arguments, **named)

    return call


def lazy(
    package: str, modules: Mapping[str, Sequence[str]], held: dict[str, Any]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` (PEP 562) of a package that imports names from its modules when they are first used.

    `modules` maps each module of the package to the names that come from it; `held` is the package's `globals()`.

    >>> get, names = lazy("json", {"decoder": ("JSONDecoder",)}, {})
    >>> get("JSONDecoder").__name__, names()
    ('JSONDecoder', ['JSONDecoder'])
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f".{module_of[name]}", package)
        held[name] = getattr(module, name) if hasattr(module, name) else import_module(f".{name}", module.__name__)
        return held[name]

    return get, lambda: sorted({*held, *module_of})


class Package(ModuleType):
    """A lazy package with modules named like their contents: `package.name` is the content in `__all__`, not the module.

    Python sets each module that it imports as an attribute of its package, where it would hide the name.
    """

    __all__: Sequence[str]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, except a module whose name is in `__all__`."""
        if not (isinstance(value, ModuleType) and name in self.__all__):
            super().__setattr__(name, value)
