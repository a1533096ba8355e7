"""Lets ``lance_namespace.connect("hive", …)`` find our catalogs without an import of lance_bridge.

``lance_bridge_names.pth`` imports this at the start of every Python process, so it imports nothing
but `sys`: not `typing`, not `importlib.metadata`, not even `__future__`. It inserts an import
finder that handles one module. After lance_namespace is imported, its registry falls back to the
entry points for names that the process has not registered itself. In a process that imports
lance_bridge, it handles a second one: the package that lance_namespace has its models from is a
client of REST, whose methods are imported when they are used, because that takes a second.
"""

import sys

TYPE_CHECKING = False  # `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

GROUP = "lance_bridge.catalogs"
NAMESPACES_GROUP = "lance_bridge.namespaces"
"""Namespaces that are not catalogs, such as a federation of several."""
VENDORS_GROUP = "lance_bridge.vendors"
"""Vendors of storage credentials."""
_INTERFACE = "lance_namespace"
_REGISTRY = "_REGISTERED_IMPLS"
_CLIENT = "lance_namespace_urllib3_client"


def install() -> None:
    """Add our names to lance_namespace, now or when it is imported."""
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    module = sys.modules.get(_INTERFACE)
    if module is not None:
        _serve_names(module)


def defer_rest_client() -> None:
    """Import the methods of the REST client when they are used, unless that has been done."""
    _LOADERS[_CLIENT] = _DeferringLoader


def catalogs() -> "dict[str, str]":
    """Return the installed catalogs: ``impl`` to class path (``package.Class``)."""
    return _entry_points(GROUP)


def implementations() -> "dict[str, str]":
    """Return all installed namespaces, including catalogs: ``impl`` to class path."""
    return {**_entry_points(NAMESPACES_GROUP), **catalogs()}


def vendors() -> "dict[str, str]":
    """Return the installed vendors of storage credentials: name to class path."""
    return _entry_points(VENDORS_GROUP)


def _entry_points(group: str) -> "dict[str, str]":
    from importlib import metadata  # noqa: PLC0415 - milliseconds that most processes can save

    points = metadata.entry_points(group=group)
    return {point.name: point.value.replace(":", ".") for point in points}


class Names(dict[str, str]):
    """lance_namespace's registry, with the entry points as a fallback.

    A name that the process registered takes precedence, whatever the order of imports. If it hides
    one of our catalogs, a warning is logged when it is used.
    """

    def __init__(self, registered: "dict[str, str]") -> None:
        super().__init__(registered)
        self._found: dict[str, str] = {}
        self._compared: set[tuple[str, str]] = set()

    def get(self, name: str, default: "Any" = None) -> "Any":
        """Return the class path of a name; called by `lance_namespace.connect`."""
        registered = super().get(name)
        if not isinstance(name, str) or "." in name:  # a class path: the entry points are not read
            return default if registered is None else registered
        if registered is None:
            return self._installed(name) or default
        if (name, registered) not in self._compared:
            self._compared.add((name, registered))
            ours = self._installed(name)
            if ours is not None and ours != registered:
                _log_clash(name, registered, ours)
        return registered

    def __missing__(self, name: str) -> str:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return str(found)

    def _installed(self, name: str) -> "str | None":
        if name not in self._found:
            self._found.update(implementations())
        return self._found.get(name)


def _log_clash(name: str, registered: str, ours: str) -> None:
    import logging  # noqa: PLC0415 - see the top of this file

    logging.getLogger("lance_bridge").warning(
        "lance_namespace.connect(%r) gives %s, which this process registered under that name. "
        "lance-bridge's %s is given by lance_bridge.connect(%r), or by its class path",
        name,
        registered,
        ours,
        name,
    )


def _serve_names(module: "ModuleType") -> None:
    """Replace the registry in a module; do nothing if it has none."""
    registered = vars(module).get(_REGISTRY)
    if isinstance(registered, dict) and not isinstance(registered, Names):
        setattr(module, _REGISTRY, Names(registered))


class _Finder:
    """Finds packages with the finders after this one, and wraps their loaders."""

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        if name not in _LOADERS:
            return None
        finders = iter(list(sys.meta_path))
        for finder in finders:
            if finder is self:
                break
        for finder in finders:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find and find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _LOADERS[name](spec.loader)  # type: ignore[assignment]  # by its methods
                return spec
        return None


class _Loader:
    """Restores the module's own loader, executes the module, and adds our names to it."""

    def __init__(self, loader: "Any") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> "Any":
        if name == "_loader":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def exec_module(self, module: "ModuleType") -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._execute(module)

    def _execute(self, module: "ModuleType") -> None:
        self._loader.exec_module(module)
        _serve_names(module)


class _DeferringLoader(_Loader):
    """Executes a package when a name of it is used. Its submodules can be imported before."""

    def _execute(self, module: "ModuleType") -> None:
        if not hasattr(module, "__path__"):
            self._loader.exec_module(module)
            return
        from importlib import import_module  # noqa: PLC0415 - see the top of this file

        def execute() -> None:
            # Threads may do so at the same time: the package only imports.
            self._loader.exec_module(module)
            for name in ("__getattr__", "__dir__"):
                vars(module).pop(name, None)

        def get(name: str) -> "Any":
            if _is_submodule(module, name):
                return import_module(f"{module.__name__}.{name}")
            if not _is_special(name):
                execute()
            if name in vars(module):
                return vars(module)[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        def names() -> "list[str]":
            execute()
            return dir(module)

        vars(module).update(__getattr__=get, __dir__=names)


def _is_special(name: str) -> bool:
    """Return whether a name is one that Python asks modules for, and packages do not define."""
    return name.startswith("__") and name not in ("__all__", "__version__")


def _is_submodule(module: "ModuleType", name: str) -> bool:
    from importlib.machinery import PathFinder  # noqa: PLC0415 - see the top of this file

    return PathFinder.find_spec(f"{module.__name__}.{name}", module.__path__) is not None


_LOADERS: "dict[str, type[_Loader]]" = {_INTERFACE: _Loader}
