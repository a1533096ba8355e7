"""The kit on pylance's own directory namespace, which shows that the kit is fair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lance_namespace
import pytest
from lance.namespace import DirectoryNamespace

from lance_bridge.testing import (
    Features,
    RequestSuite,
    ServerSuite,
    Target,
    inherited_operations,
    without,
)
from lance_bridge.testing.data import EveryOperationCases
from lance_bridge.testing.stateful import StatefulCases

NOT_IMPLEMENTED = frozenset(
    {"alter_table_backfill_columns", "refresh_materialized_view", "rename_table"}
)
"""Operations that pylance's class passes on, and that Lance does not implement."""
_REASONS: Mapping[str, Mapping[str, str]] = {
    "takes any mode": {
        "create_with_an_unknown_mode_is_invalid_input": "",
        "drop_with_an_unknown_mode_or_behavior_is_invalid_input": "",
        "register_with_an_unknown_mode_is_invalid_input": "",
    },
    "takes any name": {
        "a_hostile_table_name_is_invalid_input": "",
        "a_hostile_namespace_name_of_a_table_is_invalid_input": "",
        "a_hostile_namespace_name_is_invalid_input": "",
    },
    "does not check that the namespace exists": {
        "operations_on_a_table_of_a_missing_namespace_are_namespace_not_found": (
            "declare_table | create_table | describe_table | table_exists | count_table_rows | "
            "deregister_table | drop_table"
        ),
        "operations_on_a_missing_namespace_are_namespace_not_found": (
            "list_namespaces | list_tables"
        ),
        "data_in_a_missing_namespace_is_namespace_not_found": "",
    },
    "takes any limit and any token": {
        "a_listing_with_a_limit_below_one_is_invalid_input": "",
        "a_listing_with_a_bad_token_is_invalid_input": "",
        "a_token_of_another_namespace_is_invalid_input": "",
        "a_token_of_another_listing_is_invalid_input": "",
    },
    "honours no mode of CreateNamespace but Create, and not Skip": {
        "create_exist_ok_keeps_the_existing_namespace": "",
        "create_overwrite_replaces_an_empty_namespace": "",
        "create_overwrite_of_a_namespace_with_tables_is_namespace_not_empty": "",
        "all_creators_of_a_namespace_with_exist_ok_succeed": "",
        "drop_skip_of_a_missing_namespace_succeeds": "",
    },
    "does not honour Overwrite of RegisterTable": {
        "register_overwrite_replaces_the_entry_and_keeps_both_data": "",
    },
    "registers the root itself for an empty location": {
        "register_with_an_empty_location_is_invalid_input": "",
    },
    "deletes files without comparing locations with other entries": {
        "drop_of_a_table_that_shares_its_location_is_invalid_table_state": "",
        "drop_of_a_table_whose_location_contains_another_or_is_inside_is_invalid_table_state": "",
    },
    "refuses absolute locations": {
        "drop_sees_a_shared_location_in_another_spelling": "",
    },
    "reads the version only when it opens the dataset": {
        "describe_of_a_missing_version_is_table_version_not_found": "",
        "exists_checks_the_version": "",
    },
    "gives null for no properties, and takes [] but not null for the root": {
        "properties_of_a_namespace_without_any_are_not_null": "",
        "a_null_namespace_identifier_is_the_root": "",
    },
    "always gives the URI, and neither statistics nor metadata": {
        "describe_gives_no_table_uri_unless_asked": "",
        "detailed_describe_gives_statistics_and_metadata": "",
    },
    "ConcurrentModification or InternalError in a race": {
        "all_creators_of_a_table_with_exist_ok_get_the_same_one": "",
        "one_of_many_droppers_of_a_table_wins": "",
    },
    "InternalError for a stream that cannot be read or has no rows": {
        "a_failed_create_table_can_be_repeated": "",
        "create_table_from_a_stream_without_rows_makes_an_empty_table": "",
    },
    "NotImplementedError for some operations it lacks, or reads the request first": {
        "absent_operations_are_unsupported": " | ".join(NOT_IMPLEMENTED),
    },
    "InvalidInput without a code of the specification": {
        "a_table_operation_without_an_identifier_is_invalid_input": (
            "alter_table_add_columns | alter_table_alter_columns | alter_table_drop_columns"
        ),
    },
    "TypeError: takes mappings in place of models": {
        "versions_are_created_described_restored_and_deleted": "",
        "data_of_a_missing_table_is_table_not_found": (
            "batch_delete_table_versions | create_table_version | describe_table_version"
        ),
        "a_table_operation_without_an_identifier_is_invalid_input": (
            "batch_delete_table_versions | create_table_version | describe_table_version"
        ),
    },
    "answers that any alteration of a transaction is made": {
        "a_transaction_stays_as_it_ended": "",
    },
    "TableNotFound for a table without data": {
        "data_of_a_declared_table_is_invalid_table_state": "",
        "a_declared_table_has_no_version_and_no_tag": "",
    },
    "ignores the branch or the tag": {
        "data_of_a_missing_branch_is_branch_not_found": "",
    },
}
"""Reason to cases, each of which must fail; or must fail for these of its requests alone."""

DEVIATIONS: Mapping[str, str] = {
    f"test_{case}" + (f"[{name}]" if name else ""): reason
    for reason, cases in _REASONS.items()
    for case, names in cases.items()
    for name in names.split(" | ")
}
"""Case, or ``case[request]``, to the reason."""

MISSING_FEATURES = {
    "table_properties": "RegisterTable loses the properties",
    "managed_tables": "an entry holds no version",
    "rename": "it has no RenameTable",
    "rename_across": "it has no RenameTable",
    "chosen_location": "it refuses a location that it did not choose",
    "cascade": "it refuses to drop a namespace that has tables",
    "list_all": "ListAllTables has the tables of the root only",
    "declare_again": "a declared table exists",
}
"""What pylance's directory cannot do, and why."""


class DirectoryTarget(Target):
    """A directory namespace on local disk."""

    features = without(
        Features(
            fixed_depth=False,
            nested_namespaces=True,
            absent=inherited_operations(DirectoryNamespace) | NOT_IMPLEMENTED,
        ),
        *MISSING_FEATURES,
    )
    deviations = DEVIATIONS

    def __init__(self, root: Path) -> None:
        self.data_root = str(root)

    def connect(self) -> lance_namespace.LanceNamespace:
        return lance_namespace.connect("dir", {"root": self.data_root})

    def lacks(self, need: str) -> str:
        why = super().lacks(need)
        return f"{why}: {MISSING_FEATURES[need]}" if why and need in MISSING_FEATURES else why

    def register_location(self, location: str) -> str:
        """Registered locations must be relative to the root."""
        return location.removeprefix(f"{self.data_root}/")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("directory")


@pytest.fixture(scope="class")
def target(root: Path) -> DirectoryTarget:
    return DirectoryTarget(root)


@pytest.mark.servers
class TestDirectory(ServerSuite, RequestSuite, EveryOperationCases):
    """pylance's DirectoryNamespace, with its known deviations."""


@pytest.mark.slow
class TestDirectoryAtRandom(StatefulCases):
    """Random sequences without the steps that deviate."""
