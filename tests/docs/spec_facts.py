"""What specs are held to: the interface's operations, and what the code documents of them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from pathlib import Path

from lance_namespace import LanceNamespace
from lance_namespace.errors import ErrorCode

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge.operations.management import ManagementOperations

from .spec_reader import ErrorParagraph, Spec

REPOSITORY = Path(__file__).parents[2]
INSIDE, SPARK, CLI, MIGRATION = "operations", "spark", "cli", "migration"
CLIENTS = "clients"
"""The specs of what is the same on every catalog."""
ADAPTERS = "adapters"
"""How a catalog is added."""
COMMON = "common"
"""What the specs of all catalogs have in common."""
SPECS = {
    path.stem: Spec(path)
    for path in sorted((REPOSITORY / "specs").glob("*.md"))
    if path.stem not in (INSIDE, SPARK, CLI, MIGRATION, CLIENTS, ADAPTERS, COMMON)
}
"""By catalog."""
CLIENTS_SPEC = Spec(REPOSITORY / "specs" / f"{CLIENTS}.md")
OPERATIONS_SPEC = Spec(REPOSITORY / "specs" / f"{INSIDE}.md")
SPARK_SPEC = Spec(REPOSITORY / "specs" / f"{SPARK}.md")
CLI_SPEC = Spec(REPOSITORY / "specs" / f"{CLI}.md")
MIGRATION_SPEC = Spec(REPOSITORY / "specs" / f"{MIGRATION}.md")
COMMON_SPEC = Spec(REPOSITORY / "specs" / f"{COMMON}.md")
ADAPTERS_SPEC = Spec(REPOSITORY / "specs" / f"{ADAPTERS}.md")
ALL_SPECS = {path.stem: Spec(path) for path in sorted((REPOSITORY / "specs").glob("*.md"))}
"""Every document of ``specs/`` by its name."""

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
    """The codes that a method's docstring lists: ``Errors: 1, 4 (why), 13.``"""
    match = re.search(r"Errors: ([^.]+)\.", getattr(kind, method).__doc__ or "")
    assert match, f"the docstring of {method} lists no error codes"
    return {int(code) for code in re.findall(r"\b\d+\b", match[1])}


def misnamed_codes(errors: Iterable[ErrorParagraph]) -> list[tuple[int, str]]:
    """Codes of error paragraphs with another name than that of the specification."""
    codes = [item for error in errors for item in error.codes.items()]
    assert codes
    return [(code, name) for code, name in codes if _ERROR_NAMES.get(code) != name]
