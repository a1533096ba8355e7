"""What specs are held to: the interface's operations, and what the code documents of them."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lance_namespace import LanceNamespace, errors
from lance_namespace.errors import ErrorCode

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge.operations.versions import ManagementOperations

from .spec_reader import ErrorParagraph, Spec

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = {path.stem: Spec(path) for path in sorted((REPOSITORY / "specs").glob("*.md"))}
OF_ALL_CATALOGS = (
    "common", "operations", "spark", "cli", "migration", "clients", "federated",
    "server", "managed",
)  # fmt: skip
SPECS = {name: spec for name, spec in DOCUMENTS.items() if name not in OF_ALL_CATALOGS}
"""By catalog."""
COMMON_SPEC = DOCUMENTS["common"]
OPERATIONS_SPEC = DOCUMENTS["operations"]

_ERROR_NAMES = {int(code): code.name.title().replace("_", "") for code in ErrorCode}


def operations() -> dict[str, str]:
    """Every operation of the namespace API: its name in a spec, to that of its method."""
    public = [name for name, each in vars(LanceNamespace).items() if callable(each)]
    return {
        "".join(word.capitalize() for word in name.split("_")): name
        for name in public
        if name != "namespace_id" and not name.startswith("_")
    }


def operations_inside() -> list[str]:
    """The operations that have a section in `OPERATIONS_SPEC`, in its order."""
    known = operations()
    return [text for level, text in OPERATIONS_SPEC.headings if level == 3 and text in known]


def common_operations() -> list[str]:
    """The operations that have a section in `COMMON_SPEC`, in its order."""
    return COMMON_SPEC.below("Namespace Operations") + COMMON_SPEC.below("Table Operations")


def namespace_class(impl: str) -> type[LanceBridgeNamespace]:
    """The class that is registered under a name."""
    module, _, name = lance_bridge.catalogs()[impl].rpartition(".")
    found: type[LanceBridgeNamespace] = getattr(importlib.import_module(module), name)
    return found


def methods_of_managed_tables() -> list[str]:
    """The methods beyond the namespace API, which have a section there, too."""
    return [name for name in vars(ManagementOperations) if not name.startswith("_")]


def is_implemented(kind: type[LanceNamespace], method: str) -> bool:
    return getattr(kind, method) is not getattr(LanceNamespace, method)


def documented_codes(kind: type[LanceNamespace], method: str) -> set[int]:
    """The codes of the errors that a method's docstring names: ``Raises: TableNotFound (why).``"""
    match = re.search(r"Raises: ([^.]+)\.", getattr(kind, method).__doc__ or "")
    assert match, f"the docstring of {method} names no errors"
    names = re.sub(r"\([^)]*\)", "", match[1]).split(",")
    return {int(getattr(errors, f"{name.strip()}Error").code) for name in names}


def codes_of_server(impl: str) -> set[int]:
    """The codes that an adapter gives to failures of its server, whatever the operation is."""
    package = namespace_class(impl).__module__.partition(".")[0]
    modules = [
        name for name in (f"{package}.errors", f"{package}.transport.faults") if _exists(name)
    ]
    found = [each for name in modules for each in vars(importlib.import_module(name)).values()]
    of_objects = (errors.NamespaceNotFoundError, errors.TableNotFoundError)
    return {
        int(each.code)
        for each in found
        if isinstance(each, type)
        and issubclass(each, errors.LanceNamespaceError)
        and each not in (errors.LanceNamespaceError, *of_objects)
    }


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of its package
        return False


def bad_errors(section: str, errors: Iterable[ErrorParagraph]) -> Iterator[str]:
    """Yield what is wrong with the paragraphs under a section's Error Handling."""
    for error in errors:
        if not error.is_well_formed:
            yield f"{section}: not of the form 'If …, return error code `N` (Name)': {error.text}"
        for code, name in error.codes.items():
            if _ERROR_NAMES.get(code) != name:
                yield f"{section}: {code} is not {name}"
