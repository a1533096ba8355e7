"""Where pylance's directory namespace answers otherwise than the specification: inside tables.

Every key is a case of the kit, or one with its parameters; each must fail.
"""

from __future__ import annotations

from collections.abc import Mapping

_ABSENT = "NotImplementedError for some operations it lacks, or looks at the request first"
_BRANCH = "takes no notice of the branch, or tells a missing one as something else"
_CODE = "InvalidInput, InternalError or no Lance error, where the specification has a code"
_COMPUTED = "knows no column but of an expression"
_DECLARED = "TableNotFound for a table without data"
_INDEX = "spells kinds of indices in its own way, and gives no distance"
_LOOSE = "takes what makes no sense"
_MAPPINGS = "wants a mapping in place of the request's model"
_NAMESPACE = "does not look whether the namespace exists"
_PAGES = "takes any limit and any token"
_REFERENCES = "has another answer for a tag, a branch or a version that is not there"
_TRANSACTIONS = "says of any alteration that it is done"
_UNFIT = "InternalError for rows that do not fit"

_NAME = "an_index_that_cannot_be_is_invalid_input"
_UPDATE = "an_update_that_makes_no_sense_is_invalid_input"
_SEARCH = "a_search_that_makes_no_sense_is_invalid_input"
_NEAR = "[5.3, 0.5, 0.4, 0.3, 0.2, 0.1, 0.6, 0.7]"
_APPLE = "'match': {'terms': 'apple', 'column': 'text'}, 'phrase': {'terms': 'apple'}"

_REASONS: Mapping[str, tuple[str, ...]] = {
    _ABSENT: ("operations_that_are_not_there_are_unsupported",),
    _BRANCH: (
        "a_query_of_a_branch_sees_its_rows",
        "a_search_sees_the_version_and_the_branch",
        "a_table_is_described_by_its_branch",
        "a_tag_of_a_branch_keeps_the_branch",
        "indices_are_those_of_the_version_and_of_the_branch",
        "on_a_missing_branch_is_branch_not_found",
        "rows_are_inserted_into_a_branch",
        "statistics_of_a_branch_are_its_own",
        *(
            f"an_operation_on_a_branch_leaves_main_alone[{operation}]"
            for operation in (
                "alter_table_add_columns",
                "alter_table_alter_columns",
                "alter_table_drop_columns",
                "create_table_index",
                "create_table_scalar_index",
                "delete_from_table",
                "drop_table_index",
                "insert_into_table",
                "merge_insert_into_table",
                "update_table",
                "update_table_schema_metadata",
            )
        ),
    ),
    _CODE: (
        "a_column_that_cannot_be_added_is_invalid_input",
        "a_drop_of_an_unknown_column_names_it",
        "a_drop_of_no_column_or_of_all_is_invalid_input",
        "a_query_by_an_unknown_column_names_it",
        "a_query_with_a_bad_filter_is_invalid_input",
        "a_restore_of_a_missing_version_is_version_not_found",
        "a_search_in_an_unknown_column_names_it",
        "a_text_query_of_an_unknown_column_names_it",
        "an_added_column_over_an_unknown_one_names_it",
        "an_alteration_of_an_unknown_column_names_it",
        "an_alteration_that_cannot_be_is_invalid_input",
        "delete_by_an_unknown_column_names_it",
        "inside_a_table_without_an_identifier_is_invalid_input",
        "merge_by_an_unknown_column_names_it",
        "the_plan_of_a_bad_query_is_refused_as_the_query_is",
        "update_with_an_unknown_column_names_it",
        f"{_NAME}[id-FTS-{{}}]",
        f"{_NAME}[vector-BTREE-{{}}]",
        f"{_NAME}[word-IVF_FLAT-{{}}]",
        f"{_UPDATE}[[['id', 'NULL']]-None]",
    ),
    _COMPUTED: (
        "a_column_of_a_function_in_an_image_is_refused_by_name",
        "a_column_gets_another_type",
    ),
    _DECLARED: (
        "a_declared_table_has_no_version_and_no_tag",
        "a_declared_table_lists_no_versions_tags_and_branches",
        "inside_a_declared_table_is_invalid_table_state",
    ),
    _INDEX: (
        "an_index_of_every_scalar_kind_is_built",
        "an_index_of_every_vector_kind_is_built",
    ),
    _LOOSE: (
        "a_merge_that_makes_no_sense_is_invalid_input[{'timeout': 'soon'}]",
        f"a_text_query_that_makes_no_sense_is_invalid_input[{{{_APPLE}}}]",
        "delete_with_a_bad_predicate_is_invalid_input[true; true]",
        "inside_a_table_of_a_hostile_namespace_is_invalid_input",
        "inside_a_table_with_a_hostile_name_is_invalid_input",
        f"{_NAME}[id-BTREE-{{'name': ''}}]",
        f"{_NAME}[id-BTREE-{{'num_partitions': 2}}]",
        f"{_NAME}[vector-IVF_PQ-{{'num_sub_vectors': 7}}]",
        f"{_SEARCH}[{{'lower_bound': 2.0, 'upper_bound': 1.0}}]",
        f"{_SEARCH}[{{'nprobes': 0}}]",
        f"{_SEARCH}[{{'vectors': [{_NEAR}, [1.0]]}}]",
        f"{_UPDATE}[[['n', '1']]-id = 1; drop table t]",
    ),
    _MAPPINGS: (
        "a_manifest_that_is_not_the_one_meant_is_invalid_input",
        "a_missing_version_is_version_not_found",
        "a_range_that_ends_before_it_starts_is_invalid_input",
        "a_staged_manifest_becomes_the_next_version",
        "a_version_is_described_as_it_is_listed",
        "a_version_that_a_tag_or_a_branch_needs_is_never_deleted",
        "a_version_that_is_there_or_is_not_the_next_is_a_conflict",
        "inside_a_missing_table_is_table_not_found[batch_delete_table_versions]",
        "inside_a_missing_table_is_table_not_found[create_table_version]",
        "inside_a_missing_table_is_table_not_found[describe_table_version]",
        "the_latest_version_is_never_deleted",
        "versions_in_the_ranges_are_deleted",
        "versions_of_a_branch_are_deleted_by_themselves",
    ),
    _NAMESPACE: ("inside_a_table_of_a_missing_namespace_is_namespace_not_found",),
    _PAGES: (
        "branches_are_listed_page_by_page",
        "tags_are_listed_page_by_page",
        "versions_are_listed_page_by_page",
    ),
    _REFERENCES: (
        "a_branch_of_a_missing_version_is_version_not_found",
        "a_table_is_described_by_its_tag",
        "an_unknown_branch_is_branch_not_found",
        "an_unknown_tag_is_tag_not_found",
    ),
    _TRANSACTIONS: (
        "a_transaction_is_never_altered_but_what_holds_is_accepted",
        "an_alteration_that_says_nothing_is_invalid_input",
    ),
    _UNFIT: (
        "insert_of_rows_that_do_not_fit_is_a_schema_error",
        "overwrite_with_rows_that_do_not_fit_is_a_schema_error",
        "rows_from_a_malformed_stream_are_invalid_input",
    ),
    "counts the rows before the offset among the k": (
        "a_search_answers_with_k_rows_after_the_offset",
    ),
    "merges the metadata of the schema": ("metadata_of_the_schema_is_replaced",),
    "searches for the first of several vectors only": ("several_vectors_are_each_searched_for",),
    "searches by vector or by text, not by both": (
        "a_search_by_vector_and_text_finds_the_best_of_both",
    ),
}

INSIDE: Mapping[str, str] = {
    f"test_{case}": reason for reason, cases in _REASONS.items() for case in cases
}
"""Case to reason."""
