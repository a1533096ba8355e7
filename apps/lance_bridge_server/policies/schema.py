"""The Cedar schema that policies are validated against: principals, objects and actions.

Actions are the operations of `lance_namespace.LanceNamespace` by name, in groups.
"""

from __future__ import annotations

from ..authorization.accesses import SERVER_RIGHTS, SET_LOCATION, SET_NAMESPACE_LOCATION

_NAMESPACE_GROUPS = {
    "see": ("describe_namespace", "namespace_exists", "list_namespaces", "list_tables",
            "list_all_tables"),
    "create": ("create_namespace",),
    "manage": ("drop_namespace",),
    "operate": SERVER_RIGHTS,
}  # fmt: skip
_TABLE_GROUPS = {
    "see": ("describe_table", "table_exists"),
    "read": ("count_table_rows", "explain_table_query_plan", "analyze_table_query_plan",
             "get_table_stats", "list_table_versions", "describe_table_version",
             "list_table_indices", "describe_table_index_stats", "list_table_tags",
             "get_table_tag_version", "list_table_branches", "describe_transaction"),
    "write": ("insert_into_table", "merge_insert_into_table", "update_table", "delete_from_table",
              "create_table_version", "alter_transaction", "alter_table_backfill_columns",
              "refresh_materialized_view"),
    "alter": ("alter_table_add_columns", "alter_table_alter_columns", "alter_table_drop_columns",
              "update_table_schema_metadata", "update_field_metadata", "create_table_index",
              "create_table_scalar_index", "drop_table_index", "create_table_tag",
              "update_table_tag", "delete_table_tag", "create_table_branch", "delete_table_branch",
              "restore_table", "batch_delete_table_versions"),
    "create": ("create_table", "declare_table", "create_materialized_view"),
    "manage": ("register_table", "deregister_table", "drop_table", "rename_table"),
}  # fmt: skip

GROUPS = ("see", "read", "write", "alter", "create", "manage", "operate")
"""The groups of actions. ``read`` includes ``see``."""

_ENTITIES = """
entity Group;
entity User in [Group] { method: String } tags String;
entity Namespace in [Namespace] { name: String };
entity Table in [Namespace] { name: String };
action read, write, alter, create, manage, operate;
action see in [read];
"""


def schema_text() -> str:
    """Return the schema, in Cedar's own syntax."""
    lines = [_ENTITIES.strip()]
    for group, actions in _NAMESPACE_GROUPS.items():
        lines += [_action(each, group, "Namespace") for each in actions]
    for group, actions in _TABLE_GROUPS.items():
        lines += [_action(each, group, "Table") for each in actions]
    # A materialized view may read every table, which is authorized as a query on the root.
    lines.append(_action("query_table", "read", "Table, Namespace"))
    location = ", context: { location: String }"
    lines.append(_action(SET_LOCATION, "manage", "Table", location))
    lines.append(_action(SET_NAMESPACE_LOCATION, "manage", "Namespace", location))
    return "\n".join(lines) + "\n"


def _action(name: str, group: str, resources: str, context: str = "") -> str:
    applies = f"principal: [User], resource: [{resources}]{context}"
    return f"action {name} in [{group}] appliesTo {{ {applies} }};"
