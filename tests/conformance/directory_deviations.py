"""Where pylance's directory namespace answers otherwise than the specification."""

from __future__ import annotations

from collections.abc import Mapping

_REASONS: Mapping[str, Mapping[str, str]] = {
    "takes any mode": {
        "create_with_an_unknown_mode_is_invalid_input": "",
        "drop_with_an_unknown_mode_is_invalid_input": "",
        "drop_with_an_unknown_behavior_is_invalid_input": "",
        "register_with_an_unknown_mode_is_invalid_input": "",
    },
    "takes any name": {
        "a_hostile_table_name_is_invalid_input": "",
        "a_hostile_namespace_name_of_a_table_is_invalid_input": "",
        "a_hostile_namespace_name_is_invalid_input": "",
        "an_empty_name_in_a_table_identifier_is_invalid_input": "",
        "an_empty_name_in_a_namespace_identifier_is_invalid_input": "",
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
        "versions_are_listed_page_by_page": "",
        "tags_are_listed_page_by_page": "",
        "branches_are_listed_page_by_page": "",
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
        "drop_of_a_table_whose_location_contains_another_is_invalid_table_state": "",
        "drop_of_a_table_inside_the_location_of_another_is_invalid_table_state": "",
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
        "detailed_describe_counts_fragments_and_deleted_rows": "",
        "detailed_describe_gives_the_metadata_of_the_table": "",
    },
    "ConcurrentModification or InternalError in a race": {
        "all_creators_of_a_table_with_exist_ok_get_the_same_one": "",
        "one_of_many_droppers_of_a_table_wins": "",
    },
    "InternalError for a stream that cannot be read or has no rows": {
        "create_table_from_a_malformed_stream_is_invalid_input": (
            "not Arrow | cut in the schema | cut in the rows | length of the schema too large"
        ),
        "create_table_overwrite_from_a_malformed_stream_keeps_the_rows": (
            "not Arrow | cut in the schema | cut in the rows | length of the schema too large"
        ),
        "a_failed_create_table_can_be_repeated": "",
        "create_table_from_a_stream_without_rows_makes_an_empty_table": "",
    },
    "another code than the specification has, or accepts what is wrong": {
        "bad_updates_are_refused": (
            "unknown column | unknown column in a value | unknown column in the predicate | null "
            "in a required column | predicate id = 1; drop table t"
        ),
        "bad_deletes_are_refused": "unknown column | predicate true; true",
        "bad_merges_are_refused": "by an unknown column | timeout | cut in the rows",
        "bad_inserts_are_refused": (
            "a column of another type | no required column | a column that the table lacks | "
            "vectors of another length | overwrite with another type | cut in the rows"
        ),
        "bad_queries_are_refused": (
            "filter by an unknown column | unknown column | expression over an unknown column | "
            "filter id >>>  | filter (( | filter id = 'x | filter select 1 | filter id + 1 | "
            "filter id = 1; drop table t | analyze by an unknown column | analyze a bad filter | "
            "explain by an unknown column | explain a bad filter"
        ),
        "bad_text_queries_are_refused": "an unknown column | two queries",
        "bad_searches_are_refused": (
            "an unknown column | vectors of two lengths | bounds that cross | no probes"
        ),
        "bad_additions_of_columns_are_refused": "",
        "bad_alterations_of_columns_are_refused": "",
        "other_bad_requests_on_columns_are_refused": "",
        "bad_requests_on_indices_are_refused": (
            "full text on a number | vectors on text | values on vectors | sub-vectors that do "
            "not divide | partitions of values | an empty name"
        ),
        "bad_requests_on_versions_are_refused": "",
        "bad_requests_on_tags_are_refused": "describe_table of an unknown tag",
        "bad_requests_on_branches_are_refused": (
            "create from an unknown one | create from a missing version | describe an unknown one"
        ),
        "count_with_a_bad_predicate_is_invalid_input": "",
    },
    "NotImplementedError for some operations it lacks, or reads the request first": {
        "absent_operations_are_unsupported": (
            "alter_table_backfill_columns | refresh_materialized_view | rename_table"
        ),
    },
    "InvalidInput without a code of the specification": {
        "a_table_operation_without_an_identifier_is_invalid_input": (
            "alter_table_add_columns | alter_table_alter_columns | alter_table_drop_columns"
        ),
    },
    "TypeError: takes mappings in place of models": {
        "data_of_a_missing_table_is_table_not_found": (
            "batch_delete_table_versions | create_table_version | describe_table_version"
        ),
        "a_manifest_that_is_not_the_one_meant_is_invalid_input": "",
        "a_staged_manifest_becomes_the_next_version": "",
        "a_version_is_described_as_it_is_listed": "",
        "a_version_that_exists_or_is_not_the_next_is_a_conflict": "",
        "the_latest_version_is_never_deleted": "",
        "versions_in_the_ranges_are_deleted": "",
        "versions_of_a_branch_are_deleted_by_themselves": "",
        "versions_tags_and_branches_are_made_and_deleted": "",
        "a_table_operation_without_an_identifier_is_invalid_input": (
            "batch_delete_table_versions | create_table_version | describe_table_version"
        ),
    },
    "TableNotFound for a table without data": {
        "data_of_a_declared_table_is_invalid_table_state": "",
        "a_declared_table_has_no_version_and_no_tag": "",
    },
    "ignores the branch or the tag": {
        "a_query_of_a_branch_sees_its_rows": "",
        "a_search_sees_the_version_and_the_branch": "",
        "a_table_is_described_by_its_branch": "",
        "a_table_is_described_by_its_tag": "",
        "a_tag_of_a_branch_keeps_the_branch": "",
        "indices_are_those_of_the_version_and_of_the_branch": "",
        "data_of_a_missing_branch_is_branch_not_found": "",
        "rows_are_inserted_into_a_branch": "",
        "statistics_of_a_branch_are_its_own": "",
        "operations_on_a_branch_leave_main_alone": (
            "alter_table_add_columns | alter_table_alter_columns | alter_table_drop_columns | "
            "create_table_index | create_table_scalar_index | delete_from_table | "
            "drop_table_index | insert_into_table | merge_insert_into_table | update_table | "
            "update_table_schema_metadata"
        ),
    },
    "has its own names for types of indices, and gives no distance": {
        "an_index_of_every_type_is_built": "",
    },
    "answers that any alteration of a transaction is made": {
        "a_transaction_is_never_altered_but_what_holds_is_accepted": "",
        "an_alteration_that_says_nothing_is_invalid_input": "",
    },
    "cannot change the type of a column": {
        "a_column_gets_another_type": "",
    },
    "merges the metadata of the schema": {
        "metadata_of_the_schema_is_replaced": "",
    },
    "counts the rows before the offset among the k": {
        "a_search_answers_with_k_rows_after_the_offset": "",
    },
    "searches for the first of several vectors, and not by vector and text": {
        "several_vectors_are_each_searched_for": "",
        "a_search_by_vector_and_text_finds_the_best_of_both": "",
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
