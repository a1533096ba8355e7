"""A look at the catalog and at the place for data, before a case of the kit runs.

Without it, a server that is not there would be waited for once in every case.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from urllib.parse import urlsplit

from lance_namespace import ListNamespacesRequest
from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError

from .build import PREFIX
from .storage import Storage
from .target import Target


class PreflightError(Exception):
    """The kit cannot run here; the message says what to do."""


def check_catalog(target: Target) -> None:
    """List the namespaces under the target's parent.

    Raises:
        PreflightError: the catalog does not answer, or not with a list.
    """
    parent = list(target.parent)
    try:
        namespace = target.connect()
        with closing(namespace) if hasattr(namespace, "close") else nullcontext():
            namespace.list_namespaces(ListNamespacesRequest(id=parent))
    except UnsupportedOperationError:
        return  # An answer too; the cases say what they think of it.
    except (LanceNamespaceError, OSError, RuntimeError, ValueError) as error:
        place = f"--parent {'.'.join(parent)}" if parent else "the root"
        raise PreflightError(
            f"the catalog does not answer a list of the namespaces under {place}: {error}\n"
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
            f"--data-root must be an absolute path or a URI (scheme://...), not {root!r}"
        )
    storage = Storage(target.storage_options)
    probe = f"{root.rstrip('/')}/{PREFIX}_probe"
    try:
        storage.put(probe, "probe", b"probe")
        storage.remove(probe)
    except (OSError, RuntimeError, ValueError) as error:
        raise PreflightError(
            f"--data-root {root} cannot be written: {error}\n"
            "Name a place that can be, and what it needs with --storage-option KEY=VALUE."
        ) from error


def _is_absolute(root: str) -> bool:
    parts = urlsplit(root)
    if parts.scheme == "file":
        return not parts.netloc and parts.path.startswith("/") and len(parts.path) > 1
    return bool(parts.scheme and parts.netloc) if parts.scheme else root.startswith("/")
