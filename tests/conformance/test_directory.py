"""The kit on pylance's own directory namespace, which shows that the kit is fair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lance_namespace
import pytest
from lance.namespace import DirectoryNamespace

from lance_bridge.testing import ConformanceSuite, Features, Target, inherited_operations

from .directory_deviations import INSIDE

_MODES = "takes any mode"
_NAMES = "takes any name"
_NAMESPACE = "does not look whether the namespace exists"
_PAGES = "takes any limit and any token"
_EXIST_OK = "honours no mode of CreateNamespace but Create"
_SHARING = "deletes files without looking for other entries at the place"
_VERSION = "looks at the version only when it opens the dataset"
_IPC = "InternalError for a stream that cannot be read"
_PREDICATE = "InternalError for a predicate that does not fit"

DEVIATIONS: Mapping[str, str] = {
    # namespaces
    "test_create_with_an_unknown_mode_is_invalid_input": _MODES,
    "test_drop_with_an_unknown_mode_is_invalid_input": _MODES,
    "test_drop_with_an_unknown_behavior_is_invalid_input": _MODES,
    "test_create_exist_ok_keeps_the_existing_namespace": _EXIST_OK,
    "test_create_overwrite_replaces_an_empty_namespace": _EXIST_OK,
    "test_create_overwrite_of_a_namespace_with_tables_is_namespace_not_empty": _EXIST_OK,
    "test_all_creators_of_a_namespace_with_exist_ok_succeed": _EXIST_OK,
    "test_drop_skip_of_a_missing_namespace_succeeds": "does not honour Skip",
    "test_properties_of_a_namespace_without_any_are_not_null": "answers null",
    "test_a_null_namespace_identifier_is_the_root": "InvalidInput for null, only [] is the root",
    "test_list_namespaces_of_a_missing_parent_is_namespace_not_found": _NAMESPACE,
    # entries of tables
    "test_declare_table_in_missing_namespace_is_namespace_not_found": _NAMESPACE,
    "test_describe_in_a_missing_namespace_is_namespace_not_found": _NAMESPACE,
    "test_exists_in_a_missing_namespace_is_namespace_not_found": _NAMESPACE,
    "test_list_tables_of_a_missing_namespace_is_namespace_not_found": _NAMESPACE,
    "test_deregister_in_a_missing_namespace_is_namespace_not_found": _NAMESPACE,
    "test_drop_in_a_missing_namespace_is_namespace_not_found": _NAMESPACE,
    "test_describe_gives_no_table_uri_unless_asked": "always gives it",
    "test_describe_of_a_missing_version_is_table_version_not_found": _VERSION,
    "test_exists_looks_at_the_version": _VERSION,
    "test_detailed_describe_counts_fragments_and_deleted_rows": "gives no statistics",
    "test_detailed_describe_gives_the_metadata_of_the_table": "gives no metadata",
    "test_register_with_an_unknown_mode_is_invalid_input": _MODES,
    "test_register_with_an_empty_location_is_invalid_input": "registers the root itself",
    "test_register_overwrite_replaces_the_entry_and_keeps_both_data": "does not honour Overwrite",
    "test_drop_of_a_table_that_shares_its_location_is_invalid_table_state": _SHARING,
    "test_drop_of_a_table_whose_location_contains_another_is_invalid_table_state": _SHARING,
    "test_drop_of_a_table_inside_the_location_of_another_is_invalid_table_state": _SHARING,
    "test_drop_sees_a_shared_location_in_another_spelling": "refuses absolute locations",
    # data
    "test_create_table_in_a_missing_namespace_is_namespace_not_found": _NAMESPACE,
    "test_count_in_a_missing_namespace_is_namespace_not_found": _NAMESPACE,
    "test_a_failed_create_table_can_be_repeated": _IPC,
    **{
        f"test_create_table_{case}[{fault}]": _IPC
        for case in ("from_a_malformed_stream_is_invalid_input",)
        + ("overwrite_from_a_malformed_stream_keeps_the_rows",)
        for fault in ("not Arrow", "cut in the schema", "cut in the rows")
        + ("length of the schema too large",)
    },
    "test_create_table_from_a_stream_without_rows_makes_an_empty_table": "refuses it",
    "test_count_with_a_bad_predicate_is_invalid_input": _PREDICATE,
    "test_count_by_an_unknown_column_names_it": _PREDICATE,
    # paging and names
    "test_list_tables_with_a_limit_below_one_is_invalid_input": _PAGES,
    "test_list_namespaces_with_a_limit_below_one_is_invalid_input": _PAGES,
    "test_list_tables_with_a_bad_token_is_invalid_input": _PAGES,
    "test_list_namespaces_with_a_bad_token_is_invalid_input": _PAGES,
    "test_a_token_of_another_namespace_is_invalid_input": _PAGES,
    "test_a_token_of_another_listing_is_invalid_input": _PAGES,
    "test_a_hostile_table_name_is_invalid_input": _NAMES,
    "test_a_hostile_namespace_name_of_a_table_is_invalid_input": _NAMES,
    "test_a_hostile_namespace_name_is_invalid_input": _NAMES,
    "test_an_empty_name_in_a_table_identifier_is_invalid_input": _NAMES,
    "test_an_empty_name_in_a_namespace_identifier_is_invalid_input": _NAMES,
    # races
    "test_all_creators_of_a_table_with_exist_ok_get_the_same_one": "ConcurrentModification",
    "test_one_of_many_droppers_of_a_table_wins": "InternalError for files that are gone already",
    # inside tables
    **INSIDE,
}


class DirectoryTarget(Target):
    """A directory namespace on local disk."""

    features = Features(
        fixed_depth=False,
        nested_namespaces=True,
        table_properties=False,
        managed_tables=False,
        rename=False,
        rename_across=False,
        chosen_location=False,
        cascade=False,
        list_all=False,
        declare_again=False,
        absent=inherited_operations(DirectoryNamespace)
        | {"alter_table_backfill_columns", "refresh_materialized_view", "rename_table"},
    )
    deviations = DEVIATIONS

    def __init__(self, root: Path) -> None:
        self.data_root = str(root)

    def connect(self) -> lance_namespace.LanceNamespace:
        return lance_namespace.connect("dir", {"root": self.data_root})

    def register_location(self, location: str) -> str:
        """Registered locations must be relative to the root."""
        return location.removeprefix(f"{self.data_root}/")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> DirectoryTarget:
    return DirectoryTarget(tmp_path_factory.mktemp("directory"))


class TestDirectory(ConformanceSuite):
    """pylance's DirectoryNamespace, with its known deviations."""
