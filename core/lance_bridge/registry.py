"""Finding a catalog by name: entry points, the configuration file, and pylance's own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import lance_namespace
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from _lance_bridge_names import GROUP, catalogs, implementations

from . import config as configuration
from .errors import STORAGE_ERROR, as_namespace_error, invalid, unsupported
from .extras import import_attribute
from .namespace import LanceBridgeNamespace, warn_once

__all__ = [
    "GROUP", "catalogs", "connect", "connect_configured", "find", "implementation",
    "is_federation", "is_implementation", "require_lance_bridge", "require_lance_bridge_class",
]  # fmt: skip


def connect(name: str, properties: Mapping[str, Any] | None = None, **more: Any) -> LanceNamespace:
    """Connect to a catalog, to a catalog of the configuration file, or to pylance's own.

    Args:
        name: ``hive`` or another installed catalog; ``dir`` or ``rest``, which are pylance's;
            the name of a catalog in the configuration file; or a class path.
        properties: String properties of that catalog; ``more`` are added to them.

    Raises:
        InvalidInputError: (13) no such catalog, or bad properties.
        UnsupportedOperationError: (0) an extra is not installed; the message has the command.
        ServiceUnavailableError: (17) or another error of the storage of pylance's catalog.
    """
    given = _check_properties(name, properties, more)
    named = {} if is_implementation(name) else _named_catalogs()
    if name in named:
        return connect_configured(name, named[name], given)
    return _construct(find(name, named), name, given)


def connect_configured(
    name: str, entry: Mapping[str, str], given: Mapping[str, Any] | None = None
) -> LanceNamespace:
    """Connect to a catalog by its entry in a configuration.

    Args:
        name: The catalog's name; ``LANCE_BRIDGE_<NAME>_<KEY>`` in the environment overrides the
            entry.
        entry: ``impl``, and properties.
        given: Properties that override both.

    Raises:
        InvalidInputError: (13) no such implementation, or bad properties.
        UnsupportedOperationError: (0) an extra is not installed; the message has the command.
        ServiceUnavailableError: (17) or another error of the storage of pylance's catalog.
    """
    stored = dict(entry)
    impl = stored.pop("impl")
    cls = find(impl)
    if issubclass(cls, LanceBridgeNamespace):
        stored.update(configuration.environment(cls.config_type, name))
    namespace = _construct(cls, impl, {**stored, **(given or {})})
    if isinstance(namespace, LanceBridgeNamespace):
        namespace.configured_name = name
    return namespace


def _check_properties(name: Any, properties: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(name, str):
        raise invalid(f"The name of a catalog must be a string, not {type(name).__name__}")
    given = {} if properties is None else properties
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise invalid("The properties of a catalog must be a mapping of strings to strings")
    return {**given, **more}


def _named_catalogs() -> configuration.NamedCatalogs:
    named = configuration.named_catalogs()
    for name in named:
        if is_implementation(name):
            warn_once(
                f"The configuration file has a catalog '{name}', but '{name}' is the name of an "
                "implementation and always means that: give the catalog another name"
            )
    return named


def is_implementation(name: str) -> bool:
    """Return whether a name is an implementation's, and so cannot be a configured catalog's."""
    return name in lance_namespace.NATIVE_IMPLS or name in implementations()


def implementation(name: str) -> type[LanceNamespace]:
    """Return the class of what `connect` returns for a name. Properties are not read.

    Raises:
        InvalidInputError: (13) there is none, or the configuration file cannot be read.
        UnsupportedOperationError: (0) it cannot be imported.
    """
    named = {} if is_implementation(name) else _named_catalogs()
    return find(named[name]["impl"]) if name in named else find(name, named)


def find(name: str, named: Mapping[str, Any] | None = None) -> type[LanceNamespace]:
    """Return the class that a name stands for.

    Raises:
        InvalidInputError: (13) there is none.
        UnsupportedOperationError: (0) it cannot be imported.
    """
    known = {**lance_namespace.NATIVE_IMPLS, **implementations()}
    class_path = known.get(name, name)
    if "." not in class_path:
        choices = sorted({*known, *(named or {})})
        near = difflib.get_close_matches(name, choices, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise invalid(f"There is no catalog '{name}': {hint}known catalogs: {', '.join(choices)}")
    module, _, attribute = class_path.rpartition(".")
    try:
        cls = import_attribute(module, attribute)
    except ImportError as error:
        raise unsupported(f"Catalog '{name}' ({class_path}) cannot be imported: {error}") from error
    except AttributeError as error:
        raise invalid(f"There is no class '{class_path}'") from error
    if not (isinstance(cls, type) and issubclass(cls, LanceNamespace)):
        raise invalid(f"'{class_path}' is not a LanceNamespace")
    return cls


def require_lance_bridge(
    namespace: LanceNamespace, name: str, hint: str = ""
) -> LanceBridgeNamespace:
    """Return a namespace if it is one of lance-bridge's catalogs.

    Args:
        name: The name that it was connected by, for the message.
        hint: A sentence that says what to do instead.

    Raises:
        InvalidInputError: (13) it is pylance's own, or another library's.
    """
    require_lance_bridge_class(type(namespace), name, hint)
    assert isinstance(namespace, LanceBridgeNamespace)
    return namespace


def require_lance_bridge_class(
    implementation: type[LanceNamespace], name: str, hint: str = ""
) -> type[LanceBridgeNamespace]:
    """Return the class of a namespace if it is one of lance-bridge's; see `require_lance_bridge`.

    Raises:
        InvalidInputError: (13) it is pylance's own, or another library's.
    """
    if issubclass(implementation, LanceBridgeNamespace):
        return implementation
    path = f"{implementation.__module__}.{implementation.__qualname__}"
    is_native = path in lance_namespace.NATIVE_IMPLS.values()
    owner = "pylance's own" if is_native else "not lance-bridge's own"
    if is_federation(implementation):
        owner, hint = "made of others", hint or "Name one of its catalogs instead"
    known = ", ".join(sorted(catalogs()))
    text = f"'{name}' is {owner} ({path}), but this works only on {known}"
    raise invalid(f"{text}. {hint}" if hint else text)


def is_federation(implementation: type[LanceNamespace]) -> bool:
    """Return whether a class is a namespace of lance-bridge that federates others."""
    package = implementation.__module__.partition(".")[0]
    return not issubclass(implementation, LanceBridgeNamespace) and package in {
        each.partition(".")[0] for each in implementations().values()
    }


def _construct(
    cls: type[LanceNamespace], name: str, properties: Mapping[str, Any]
) -> LanceNamespace:
    if issubclass(cls, LanceBridgeNamespace):
        return cls(**properties)
    try:
        return cls(**{key: str(value) for key, value in properties.items()})
    except LanceNamespaceError:
        raise
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        if STORAGE_ERROR in str(error):
            raise as_namespace_error(f"impl={name}", error) from error
        raise invalid(f"impl={name}: {error}") from error
