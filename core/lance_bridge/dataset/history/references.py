"""Tags and branches: which names they may have, and which versions they keep alive."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import lance

from ...errors import invalid
from ...lance_errors import LANCE_ERRORS, first_line, panics_as_errors, translate_lance_errors
from ...storage.manifests import MAIN

logger = logging.getLogger(__name__)

_LOOKS = 10
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_NAME = 200
"""Each name becomes a file's. File systems take 255 characters, and while Lance writes it, it has
44 more; a `/` has four more there (``%252F``)."""
_LANCE_DIRECTORIES = {
    "_versions", "data", "_deletions", "_indices", "_transactions", "_refs", "tree", "_mem_wal",
    "_blobs", "_computed",
}  # fmt: skip


def check_tag_name(name: str) -> str:
    """Return the name of a tag. Raises InvalidInput (13) where it cannot be one.

    Lance takes letters of any alphabet, but of a table with such a tag it can list none.
    """
    if _is_plain(name) and not name.startswith(".") and not name.endswith("."):
        return name
    raise invalid(
        f"Tag name {name[:60]!r} must have 1 to {_LONGEST_NAME} letters (A-Z), digits, '.', "
        "'-' and '_', not begin or end with '.', and not hold '..' or end with '.lock'"
    )


def check_branch_name(name: str) -> str:
    """Return the name of a branch other than main. Raises InvalidInput (13)."""
    if name == MAIN:
        raise invalid(f"'{MAIN}' is the branch that every table has: use another name")
    if is_branch_name(name):
        return name
    raise invalid(
        f"Branch name {name[:60]!r} must be of letters (A-Z), digits, '.', '-' and '_', in "
        "segments divided by '/'. No segment may be '.', hold '..', end with '.lock' or be a "
        f"directory of Lance, and the name may not be longer than {_LONGEST_NAME} (a '/' counts 5)"
    )


def is_branch_name(name: str) -> bool:
    """Return True for what a branch other than main may be called.

    A branch's files are in a directory of its name, and another branch's may be around it.
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
    """Return all tags of a table as pylance has them. Raises ServiceUnavailable (17)."""
    return _listed(dataset, dataset.tags.list)


def branches_of(dataset: lance.LanceDataset) -> dict[str, Any]:
    """Return all branches of a table but main. Raises ServiceUnavailable (17)."""
    return _listed(dataset, dataset.branches.list)


def _listed(dataset: lance.LanceDataset, look: Callable[[], Any]) -> dict[str, Any]:
    """Look again where looking fails: one that is deleted after Lance saw its name makes it fail.

    One that was there while the last look was begun is in what that returns.
    """
    for _ in range(_LOOKS - 1):
        try:
            with panics_as_errors():
                return dict(look())
        except LANCE_ERRORS as error:
            logger.debug("tags or branches at %s: %s", dataset.uri, first_line(error))
    with translate_lance_errors(f"Tags or branches at {dataset.uri} could not be read"):
        return dict(look())


def needed_versions(dataset: lance.LanceDataset, branch: str | None) -> dict[int, str]:
    """Return the versions of a branch that tags and other branches refer to, and what refers.

    Args:
        dataset: Of any version of the table.
        branch: None is main.
    """
    needed = {}
    for name, child in branches_of(dataset).items():
        if child["parent_branch"] == branch:
            needed[int(child["parent_version"])] = f"branch '{name}'"
    for name, tag in tags_of(dataset).items():
        if tag["branch"] == branch:
            needed[int(tag["version"])] = f"tag '{name}'"
    return needed
