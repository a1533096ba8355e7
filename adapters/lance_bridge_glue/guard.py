"""Whether a Glue compares an entry's VersionId before it changes the entry: found out by trying."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore import exceptions as boto

from lance_bridge.catalog import Path
from lance_bridge.errors import concurrent_modification, display, table_not_found, unsupported

from . import model
from .calls import Calls
from .errors import ABSENT, CHANGED, LostReplyError, is_a


def require_comparison(calls: Calls, path: Path, table: Mapping[str, Any]) -> None:
    """Send what the entry holds once more, with the VersionId of no entry.

    Glue refuses that. A server that takes no notice of a VersionId accepts it, and the entry is as
    it was.

    Raises:
        UnsupportedOperationError: (0) there is nothing to compare, or commits could be lost.
        ConcurrentModificationError: (14) the trial's reply was lost.
        TableNotFoundError: (4)
    """
    version = table.get("VersionId")
    if version is None:
        raise unsupported(f"Table '{display(path)}' has no version of its entry to compare")
    try:
        calls.change(
            "update_table",
            DatabaseName=path[-2],
            TableInput=model.fitted(calls.shape("TableInput"), table),
            SkipArchive=True,
            VersionId=_other_than(str(version)),
        )
    except LostReplyError as error:
        raise concurrent_modification(path) from error
    except boto.ClientError as error:
        if is_a(error, CHANGED):
            return
        if is_a(error, ABSENT):
            raise table_not_found(path) from error
        raise
    raise unsupported(
        f"Table '{display(path)}' cannot be managed by this catalog: its server takes no notice of "
        "the VersionId of UpdateTable, and commits would overwrite each other. AWS Glue compares it"
    )


def _other_than(version: str) -> str:
    """Return a VersionId that the entry does not have: a number like those that Glue gives."""
    return f"9{version}"
