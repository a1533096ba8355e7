"""Checks of what a run needs, before the first case: the catalog, and locations for data.

Without them, each case would fail for the same reason, or wait for the same server. What the checks
make is removed again, also after a failure and on Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from urllib.parse import urlsplit

from lance_namespace import ListNamespacesRequest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    UnsupportedOperationError,
)

from .build import PREFIX
from .calls import Calls, code_of
from .cases import CaseNamespace, Storage, local_path
from .target import Target

_FAILURES = (LanceNamespaceError, OSError, RuntimeError, ValueError)
"""Errors of a client or a store that does not work."""


class PreflightError(Exception):
    """The kit cannot run here; the message says what to do."""

    def __init__(self, message: str, *, is_misuse: bool = False) -> None:
        super().__init__(message)
        self.is_misuse = is_misuse
        """Whether the options are wrong, rather than the catalog or the store."""


def check_levels(target: Target) -> None:
    """Check, without a call, that the namespaces that the kit would make can hold tables.

    Raises:
        PreflightError: they would be at another level, or namespaces cannot be made.
    """
    capabilities = getattr(target.connect(), "capabilities", None)
    if capabilities is None:
        return  # another implementation, which may have any number of levels
    reason = capabilities.no_namespace_changes
    if reason:
        raise PreflightError(
            f"the kit must create namespaces, and this catalog cannot: {reason}\n"
            "Write a Target for this catalog, with make_namespace and remove_namespace: see "
            "lance_bridge.testing."
        )
    nouns = [rule.noun for rule in capabilities.namespace_levels]
    outer = ".".join(noun.upper() for noun in nouns[:-1])
    if len(target.parent) == len(nouns) - 1:
        return
    levels = f"tables of this catalog are in a {nouns[-1]}"
    if not outer:
        raise PreflightError(
            f"{levels}, which is in no other namespace: leave out --parent", is_misuse=True
        )
    given = f"not --parent {'.'.join(target.parent)}" if target.parent else "which is missing"
    raise PreflightError(
        f"{levels}, which is in a {nouns[-2]}: name an existing {nouns[-2]} to work under, with "
        f"--parent {outer}, {given}",
        is_misuse=True,
    )


def check_catalog(target: Target) -> None:
    """List the namespaces under the target's parent.

    Raises:
        PreflightError: the catalog does not respond, or not with a list.
    """
    parent = list(target.parent)
    try:
        namespace = target.connect()
        with closing(namespace) if hasattr(namespace, "close") else nullcontext():
            namespace.list_namespaces(ListNamespacesRequest(id=parent))
    except UnsupportedOperationError:
        return  # A response too; the cases check whether it is right.
    except _FAILURES as error:
        place = f"--parent {'.'.join(parent)}" if parent else "the root"
        raise PreflightError(
            f"the catalog could not list the namespaces under {place}: {error}\n"
            "Start its server, or correct the properties (-p) and the parent (--parent)."
        ) from error


def check_data_root(target: Target) -> None:
    """Write one file under the target's ``data_root``, and remove it.

    Raises:
        PreflightError: it is neither an absolute path nor a URI, or cannot be written.
    """
    root = target.data_root
    if not _is_absolute(root):
        raise PreflightError(
            f"--data-root must be an absolute path or a URI (scheme://...), not {root!r}",
            is_misuse=True,
        )
    storage = Storage(target.storage_options)
    probe = f"{root.rstrip('/')}/{PREFIX}_probe"
    try:
        with _remove_new_directories(root):
            try:
                storage.put(probe, "probe", b"probe")
            finally:
                storage.remove(probe)
    except _FAILURES as error:
        raise PreflightError(
            f"--data-root {root} cannot be written: {error}\n"
            "Set it to a writable location, and its credentials with --storage-option KEY=VALUE."
        ) from error


def check_table(target: Target) -> None:
    """Make a namespace and a table with data in it, read it, and remove both.

    Raises:
        PreflightError: a namespace cannot be made, a table has no location, cannot be written with
            the catalog's properties or read with the target's storage options, or something stays.
    """
    parent = ".".join(target.parent) or "the root"
    try:
        ns = CaseNamespace(target)
    except _FAILURES as error:
        raise PreflightError(
            f"no namespace can be made under {parent}: {error}\n"
            "Name a parent where that is allowed (--parent), or correct the properties (-p)."
        ) from error
    with _close_despite_interrupt(ns):
        _try_table(ns)
    _require_removed(target, ns)


def _try_table(ns: CaseNamespace) -> None:
    try:
        table = ns.with_rows()
        location = ns.location(table)
    except UnsupportedOperationError:
        return  # as in check_catalog
    except InvalidInputError as error:
        raise PreflightError(
            f"a table without a location of its own cannot be made: {error}\n"
            "Most catalogs need a place for new tables: -p root=DIR, a path or a URI."
        ) from error
    except _FAILURES as error:
        raise PreflightError(
            f"a table cannot be made: {error}\n"
            "Name a place for new tables that can be written with -p root=DIR, and what it "
            "needs with -p storage.KEY=VALUE."
        ) from error
    try:
        ns.storage.ids(location)
    except _FAILURES as error:
        raise PreflightError(
            f"the kit cannot read the table that it made at {location}: {error}\n"
            "Set the options that reading it requires with --storage-option KEY=VALUE."
        ) from error


def _require_removed(target: Target, ns: CaseNamespace) -> None:
    with _open_api(target) as api:
        left = [
            ".".join(each) for each in ns.namespaces if code_of(api.namespace_exists, each) is None
        ]
    left += [each for each in ns.locations if PREFIX in each and ns.storage.files(each)]
    if left:
        raise PreflightError(
            f"what the kit made here could not be removed again: {', '.join(left)}\n"
            "Remove it, and give the user of these properties the right to drop what it creates."
        )


@contextmanager
def _open_api(target: Target) -> Iterator[Calls]:
    api = Calls(target.connect())
    try:
        yield api
    finally:
        api.close()


@contextmanager
def _close_despite_interrupt(ns: CaseNamespace) -> Iterator[None]:
    """Remove what was made, and continue to remove it if Ctrl-C interrupts that once."""
    try:
        yield
    finally:
        try:
            ns.close()
        except KeyboardInterrupt:
            ns.close()
            raise


@contextmanager
def _remove_new_directories(root: str) -> Iterator[None]:
    """Remove the directories at and above ``root`` that were made for it, if it is a local path."""
    path = local_path(root)
    missing = [each for each in (path, *path.parents) if not each.exists()] if path else []
    try:
        yield
    finally:
        _remove_empty(missing)


def _remove_empty(directories: list[Path]) -> None:
    for each in directories:
        with suppress(OSError):  # it was never made, or is in use by now
            each.rmdir()


def _is_absolute(root: str) -> bool:
    parts = urlsplit(root)
    if parts.scheme == "file":
        return not parts.netloc and parts.path.startswith("/") and len(parts.path) > 1
    return bool(parts.scheme and parts.netloc) if parts.scheme else root.startswith("/")
