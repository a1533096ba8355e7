"""Tags and branches: their valid names, and the versions that they refer to."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import lance

from ...errors import LANCE_ERRORS, first_line, invalid, panics_as_errors, translate_lance_errors
from ...storage.manifests import MAIN

logger = logging.getLogger(__name__)

_ATTEMPTS = 10
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_NAME = 200
"""Each name becomes a file name. File systems allow 255 characters. Lance adds 44 while it writes,
and a `/` takes four more (``%252F``)."""
_LANCE_DIRECTORIES = {
    "_versions", "data", "_deletions", "_indices", "_transactions", "_refs", "tree", "_mem_wal",
    "_blobs", "_computed",
}  # fmt: skip


def check_tag_name(name: str) -> str:
    """Return the name of a tag. Raises InvalidInput (13) if it is not valid.

    Lance accepts letters of any alphabet, but then cannot list any tag of the table.
    """
    if _is_plain(name) and not name.startswith(".") and not name.endswith("."):
        return name
    raise invalid(
        f"Tag name {name[:60]!r} must have 1 to {_LONGEST_NAME} letters (A-Z), digits, '.', "
        "'-' and '_', not begin or end with '.', and not contain '..' or end with '.lock'"
    )


def check_branch_name(name: str) -> str:
    """Return the name of a branch other than main. Raises InvalidInput (13)."""
    if name == MAIN:
        raise invalid(f"'{MAIN}' is the branch that every table has: use another name")
    if is_branch_name(name):
        return name
    raise invalid(
        f"Branch name {name[:60]!r} must consist of letters (A-Z), digits, '.', '-' and '_', in "
        "segments separated by '/'. No segment may be '.', contain '..', end with '.lock' or be a "
        f"directory of Lance, and the name may not be longer than {_LONGEST_NAME} (a '/' counts 5)"
    )


def is_branch_name(name: str) -> bool:
    """Return whether a name is valid for a branch other than main.

    A branch's files are in a directory of its name, possibly inside that of another branch.
    """
    segments = name.split("/")
    return (
        name != MAIN
        and all(_is_plain(each) and each != "." for each in segments)
        and not _LANCE_DIRECTORIES.intersection(segments)
        and len(name) + 4 * name.count("/") <= _LONGEST_NAME
    )


def _is_plain(name: str) -> bool:
    fits = _SEGMENT.fullmatch(name) and len(name) <= _LONGEST_NAME
    return bool(fits) and ".." not in name and not name.endswith(".lock")


def tags_of(dataset: lance.LanceDataset) -> dict[str, Any]:
    """Return all tags of a table, in pylance's form. Raises ServiceUnavailable (17)."""
    return _list_retrying(dataset, dataset.tags.list)


def branches_of(dataset: lance.LanceDataset) -> dict[str, Any]:
    """Return all branches of a table except main. Raises ServiceUnavailable (17)."""
    return _list_retrying(dataset, dataset.branches.list)


def _list_retrying(dataset: lance.LanceDataset, list_names: Callable[[], Any]) -> dict[str, Any]:
    """List tags or branches; retry if one was deleted between Lance's listing and reading it."""
    for _ in range(_ATTEMPTS - 1):
        try:
            with panics_as_errors():
                return dict(list_names())
        except LANCE_ERRORS as error:
            logger.debug("tags or branches at %s: %s", dataset.uri, first_line(error))
    with translate_lance_errors(f"Tags or branches at {dataset.uri} could not be read"):
        return dict(list_names())


def needed_versions(dataset: lance.LanceDataset, branch: str | None) -> dict[int, str]:
    """Return the versions of a branch that tags and other branches refer to, with one referrer.

    Args:
        dataset: The table at any version.
        branch: None for main.
    """
    needed = {}
    for name, child in branches_of(dataset).items():
        if child["parent_branch"] == branch:
            needed[int(child["parent_version"])] = f"branch '{name}'"
    for name, tag in tags_of(dataset).items():
        if tag["branch"] == branch:
            needed[int(tag["version"])] = f"tag '{name}'"
    return needed
