"""Operations on the data of a Lance table, by pylance at the location that the catalog returned.

All modules use `expressions` (SQL in requests) and `paths` (fields by name). `rows` reads the rows
of a request; `create` and `insert` write them. `update_delete_merge` changes rows, `query` finds
them, and `columns` changes columns. `versions`, `tags_and_branches` and `transactions` are about a
table's history.

Applications import the names in ``__all__`` from here, not from the modules. Names are imported
lazily: the tasks of a compute engine need few of them, and none that calls a catalog.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrow_compat import align
    from .batch_sizes import (
        BATCH_BYTES,
        BATCH_ROWS,
        READ_AHEAD,
        SCAN_BYTES,
        batch_rows,
        columns_read,
        fixed_width,
        large_row_bytes,
        row_bytes,
        scan_limits,
        split_scan,
    )
    from .columns import (
        RESERVED_COLUMNS,
        alter_columns,
        drop_columns,
        update_field_metadata,
    )
    from .create import FIRST_VERSION, NewTable, create_table, not_written, write_first
    from .expressions import (
        check_predicate,
        columns_in,
        in_brackets,
        require_sound,
        translate_query_errors,
    )
    from .index_types import IndexType, index_options, parse_index_type, stored_type, vector_of
    from .indices import describe_indices, list_indices
    from .maintenance import (
        DEFAULT_AGE,
        Cleaned,
        clean_up,
        compact,
        optimize_indices,
        plan_compaction,
    )
    from .maintenance_plan import Action, MaintenancePlan, TablePlan, plan_maintenance
    from .maintenance_run import Maintained, Result, run_maintenance
    from .paths import (
        Column,
        canonical,
        default_index_name,
        field_ids,
        find_column,
        metadata_of,
        siblings,
    )
    from .query import has_dictionary
    from .read import (
        TableStatistics,
        VersionSummary,
        count_rows,
        summarize_version,
        table_statistics,
        version_key,
    )
    from .rows import Rows
    from .searches import default_vector_column, parse_full_text, parse_nearest
    from .tags_and_branches import list_branches, list_tags
    from .transactions import VersionChange, change_of_version, list_transactions
    from .update_delete_merge import delete_rows
    from .versions import (
        branches_of,
        check_ranges,
        check_tag_name,
        directory_of,
        needed_versions,
    )

SMALL_FRAGMENT = 1024 * 1024
"""Rows below which compaction merges a fragment with others by default.

It is defined here because the help of a command shows it, without importing Lance.
"""

__all__ = [
    "BATCH_BYTES", "BATCH_ROWS", "DEFAULT_AGE", "FIRST_VERSION", "READ_AHEAD",
    "RESERVED_COLUMNS", "SCAN_BYTES", "SMALL_FRAGMENT", "Action", "Cleaned", "Column",
    "IndexType", "Maintained", "MaintenancePlan", "NewTable", "Result", "Rows", "TablePlan",
    "TableStatistics", "VersionChange", "VersionSummary", "align", "alter_columns",
    "batch_rows", "branches_of", "canonical", "change_of_version", "check_predicate",
    "check_ranges", "check_tag_name", "clean_up", "columns_in", "columns_read", "compact",
    "count_rows", "create_table", "default_index_name", "default_vector_column", "delete_rows",
    "describe_indices", "directory_of", "drop_columns", "field_ids", "find_column",
    "fixed_width", "has_dictionary", "in_brackets", "index_options", "large_row_bytes",
    "list_branches", "list_indices", "list_tags", "list_transactions", "metadata_of",
    "needed_versions", "not_written",
    "optimize_indices", "parse_full_text", "parse_index_type", "parse_nearest",
    "plan_compaction", "plan_maintenance", "require_sound", "row_bytes", "run_maintenance",
    "scan_limits", "siblings", "split_scan", "stored_type", "summarize_version",
    "table_statistics", "translate_query_errors", "update_field_metadata", "vector_of",
    "version_key", "write_first",
]  # fmt: skip

_MODULES = {
    "arrow_compat": ("align",),
    "batch_sizes": (
        "BATCH_BYTES",
        "BATCH_ROWS",
        "READ_AHEAD",
        "SCAN_BYTES",
        "batch_rows",
        "columns_read",
        "fixed_width",
        "large_row_bytes",
        "row_bytes",
        "scan_limits",
        "split_scan",
    ),
    "update_delete_merge": ("delete_rows",),
    "columns": (
        "RESERVED_COLUMNS",
        "alter_columns",
        "drop_columns",
        "update_field_metadata",
    ),
    "create": ("FIRST_VERSION", "NewTable", "create_table", "not_written", "write_first"),
    "expressions": (
        "check_predicate",
        "columns_in",
        "in_brackets",
        "require_sound",
        "translate_query_errors",
    ),
    "tags_and_branches": ("list_branches", "list_tags"),
    "transactions": ("VersionChange", "change_of_version", "list_transactions"),
    "versions": (
        "branches_of",
        "check_ranges",
        "check_tag_name",
        "directory_of",
        "needed_versions",
    ),
    "index_types": ("IndexType", "index_options", "parse_index_type", "stored_type", "vector_of"),
    "indices": ("describe_indices", "list_indices"),
    "maintenance": (
        "DEFAULT_AGE",
        "Cleaned",
        "clean_up",
        "compact",
        "optimize_indices",
        "plan_compaction",
    ),
    "maintenance_run": ("Maintained", "Result", "run_maintenance"),
    "maintenance_plan": ("Action", "MaintenancePlan", "TablePlan", "plan_maintenance"),
    "paths": (
        "Column",
        "canonical",
        "default_index_name",
        "field_ids",
        "find_column",
        "metadata_of",
        "siblings",
    ),
    "query": ("has_dictionary",),
    "searches": ("default_vector_column", "parse_full_text", "parse_nearest"),
    "read": (
        "TableStatistics",
        "VersionSummary",
        "count_rows",
        "summarize_version",
        "table_statistics",
        "version_key",
    ),
    "rows": ("Rows",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value
