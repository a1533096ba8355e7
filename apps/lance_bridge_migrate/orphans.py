"""What is said of files that loads left behind and no version of a table names."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from lance_bridge.names import written

from .plan import Address
from .record import ItemState


def texts_of(state: ItemState, target: Address) -> Iterator[str]:
    """Yield what was deleted, and what is left, with the command for it."""
    if state.undo_begun:
        return
    removed = state.facts.get("orphaned_bytes_deleted")
    if removed:
        yield f"{removed:,} bytes that interrupted loads had left were deleted"
    if not state.is_done:
        if state.has_begun:
            yield "Files of the interrupted load may be left: resuming and undoing delete them"
        return
    left, count = state.facts.get("orphaned_bytes_left"), state.facts.get("orphaned_files_left")
    if left:
        words = ["lance-bridge", "maintain", "clean-up", target.name, written(state.item.target)]
        yield (
            f"{left:,} bytes in {count} files of tasks that failed are left, which no version "
            "names. Once they are a week old, this deletes them, with versions of that age: "
            f"{shlex.join([*words, '--older-than', '7d'])}"
        )
