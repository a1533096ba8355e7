"""The state of a table that a page shows: the latest, a version, a tag or a branch.

In an address, it is the parameter ``at``: ``v5``, ``tag:stable`` or ``branch:trial``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lance_bridge.errors import invalid

from .ui_request import UiRequest

_VERSION = re.compile(r"v?([0-9]{1,18})")


@dataclass(frozen=True)
class State:
    """A state of a table."""

    text: str = ""
    """The value in an address; empty for the latest."""
    version: int | None = None
    branch: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of requests that read the state."""
        return {"version": self.version, "branch": self.branch}

    @property
    def is_latest(self) -> bool:
        """Whether it is the latest version of the main branch."""
        return self.version is None and self.branch is None


async def requested_state(ui: UiRequest, path: Sequence[str]) -> State:
    """Return the state of a table that the address of a page names.

    Raises:
        InvalidInputError: (13) it has none of the forms.
        TableTagNotFoundError: (8)
    """
    text = ui.text("at")
    kind, _, name = text.partition(":")
    if kind == "tag" and name:
        found = await ui.call("get_table_tag_version", {"id": list(path), "tag": name})
        return State(text, found.version, found.branch)
    if kind == "branch" and name:
        return State(text, branch=name)
    if not text:
        return State()
    version = _VERSION.fullmatch(text)
    if not version:
        raise invalid("`at` is a version, such as v5, or tag:NAME, or branch:NAME")
    return State(f"v{int(version[1])}", int(version[1]))
