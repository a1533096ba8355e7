"""Functions that do what SQL statements do, over the data source; they need no jar."""

from .batch_search import nearest_batch
from .change import Changed
from .filters import Condition, col
from .merge import Delete, Insert, Update, merge_into
from .reading import count, full_text, nearest, read, restore, take, version_at, versions
from .updates import delete, update
from .writing import write

__all__ = [
    "Changed",
    "Condition",
    "Delete",
    "Insert",
    "Update",
    "col",
    "count",
    "delete",
    "full_text",
    "merge_into",
    "nearest",
    "nearest_batch",
    "read",
    "restore",
    "take",
    "update",
    "version_at",
    "versions",
    "write",
]
