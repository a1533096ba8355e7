"""The oldest version that LanceDB's client accepts, and the version that it gets.

The client remembers the versions that it has written and read, and asks for them or later ones, so
that no server returns older rows. This server always reads the latest version, but a replicated
catalog may lag behind, or the table may have been recreated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.errors import invalid

MIN_HEADERS = ("x-lancedb-min-version", "x-lancedb-min-read-version")
_VERSION_HEADER = "x-lancedb-version"
_NUMBER = re.compile(r"[0-9]{1,19}")


def min_version(headers: Mapping[str, str]) -> int:
    """Return the oldest version that a request accepts, or 0 for any.

    Raises:
        InvalidInputError: (13) it is not a number.
    """
    found = {name: headers[name] for name in MIN_HEADERS if name in headers}
    for name, text in found.items():
        if not _NUMBER.fullmatch(text):
            raise invalid(f"The header {name} is not a version: {text[:40]!r}")
    return max(map(int, found.values()), default=0)


def require_min_version(wanted: int, read: int | None) -> None:
    """Check that the version is not older than the request accepts. The client retries an error.

    Args:
        read: The latest version of the table; None if it is unknown.

    Raises:
        ServiceUnavailableError: (17)
    """
    if read is not None and read < wanted:
        raise ServiceUnavailableError(
            f"The latest version of the table is {read}, and the request is for {wanted} or later: "
            "the catalog is behind, or the table was recreated; in that case, reopen it"
        )


def version_header(version: int | None) -> dict[str, str]:
    """Return the header with the table's version in a response."""
    return {} if version is None else {_VERSION_HEADER: str(version)}
