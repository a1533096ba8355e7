"""Indices of every kind that pylance builds are built, listed, described and dropped."""

from __future__ import annotations

import inspect
import json
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance.indices import IndexConfig
from lance_namespace import errors

from lance_bridge.dataset import index_types
from lance_bridge.requests import ExtendedIndexRequest

from .memory_catalog import DATASET, TABLE, MemoryNamespace, create
from .table_data import ROWS, build_index, dataset, last_transaction, list_indices, make, typed_rows
from .test_fields_for_other_tools import STORABLE

pytestmark = pytest.mark.quick

NAMED = [
    "BITMAP", "BLOOMFILTER", "BTREE", "FTS", "LABEL_LIST", "MINHASHLSH", "NGRAM", "RTREE",
    "ZONEMAP",
]  # fmt: skip
SCALAR = [*NAMED, "FM"]
VECTOR = [
    "IVF_FLAT", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ", "IVF_PQ", "IVF_RQ", "IVF_SQ",
]  # fmt: skip


def names(ns: MemoryNamespace, **more: Any) -> list[str]:
    return [index.index_name for index in list_indices(ns, **more).indexes]


def describe(
    ns: MemoryNamespace, name: str | None, **more: Any
) -> api.DescribeTableIndexStatsResponse:
    request = api.DescribeTableIndexStatsRequest(id=TABLE, index_name=name, **more)
    return ns.describe_table_index_stats(request)


def drop_index(ns: MemoryNamespace, name: str | None, **more: Any) -> str | None:
    request = api.DropTableIndexRequest(id=TABLE, index_name=name, **more)
    return ns.drop_table_index(request).transaction_id


# -- create --------------------------------------------------------------------------------------


def test_a_nested_column_can_be_indexed(ns: MemoryNamespace) -> None:
    build_index(ns, "st.`a.b`", "BTREE", name="nested")
    (index,) = list_indices(ns).indexes
    assert (index.index_name, index.columns) == ("nested", ["st.`a.b`"])


@pytest.mark.spec("operations.md#createtableindex", "operations.md#createtablescalarindex")
@pytest.mark.parametrize("more", [{}, {"name": "id_idx"}])
def test_a_name_is_taken_once(ns: MemoryNamespace, more: dict[str, str]) -> None:
    build_index(ns, "id", "BTREE")
    with pytest.raises(errors.TableIndexAlreadyExistsError, match="'id_idx'"):
        build_index(ns, "id", "BITMAP", **more)
    assert dataset(ns).version == 2


@pytest.mark.spec("server.md#sorting-and-replacing-indices")
def test_an_index_of_the_same_column_is_replaced_where_that_is_asked_for(
    ns: MemoryNamespace,
) -> None:
    def replace(column: str, index_type: str, **more: str) -> None:
        request = {"id": TABLE, "column": column, "index_type": index_type, "replace": True, **more}
        ns.create_table_index(ExtendedIndexRequest.model_validate(request))

    replace("st.`a.b`", "BTREE")
    replace("st.`a.b`", "BITMAP")
    (index,) = list_indices(ns).indexes
    assert (index.index_name, index.index_type) == ("st.`a.b`_idx", "BITMAP")
    with pytest.raises(errors.TableIndexAlreadyExistsError, match=r"'st\.`a\.b`_idx'"):
        replace("id", "BTREE", name="st.`a.b`_idx")
    assert [each.index_type for each in list_indices(ns).indexes] == ["BITMAP"]


@pytest.mark.spec("operations.md#createtableindex")
@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "__lance_frag_reuse", "__lance_mem_wal"])
def test_a_name_that_an_index_cannot_have_changes_nothing(ns: MemoryNamespace, name: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="name"):
        build_index(ns, "id", "BTREE", name=name)
    assert dataset(ns).version == 1


@pytest.mark.spec("operations.md#createtablescalarindex")
def test_scalar_indices_have_a_request_of_their_own(ns: MemoryNamespace) -> None:
    def request(column: str, kind: str) -> api.CreateTableIndexRequest:
        return api.CreateTableIndexRequest(id=TABLE, column=column, index_type=kind)

    answer = ns.create_table_scalar_index(request("text", "FTS"))
    assert answer.transaction_id == last_transaction(ns)
    with pytest.raises(errors.InvalidInputError, match="use CreateTableIndex"):
        ns.create_table_scalar_index(request("vector", "IVF_FLAT"))
    assert names(ns) == ["text_idx"]


# -- list ----------------------------------------------------------------------------------------


def test_the_list_is_that_of_the_directory_namespace(ns: MemoryNamespace, tmp_path: Any) -> None:
    for column, kind in (("id", "BTREE"), ("text", "FTS"), ("vector", "IVF_FLAT")):
        build_index(ns, column, kind)
    place = tmp_path / "dir/t.lance"
    dataset(ns).deep_clone(str(place), dataset(ns).version)
    directory = api.connect("dir", {"root": str(place.parent)})
    of_directory = directory.list_table_indices(api.ListTableIndicesRequest(id=["t"])).indexes
    for ours, other in zip(list_indices(ns).indexes, of_directory, strict=True):
        left, right = ours.to_dict(), other.to_dict()
        for answer in (left, right):
            # The specification has BTREE where the directory namespace says BTree, and so on.
            answer["index_type"] = answer["index_type"].upper().replace("INVERTED", "FTS")
            answer["index_details"] = json.loads(answer["index_details"])
        assert left == right
    assert [describe(ns, name).index_type for name in names(ns)] == ["BTREE", "FTS", "IVF_FLAT"]


def test_indices_come_in_pages_by_name(ns: MemoryNamespace) -> None:
    for name in ("c", "a", "b"):
        build_index(ns, "id", "BTREE", name=name)
    first = list_indices(ns, limit=2)
    assert [index.index_name for index in first.indexes] == ["a", "b"]
    rest = list_indices(ns, limit=2, page_token=first.page_token)
    assert [index.index_name for index in rest.indexes] == ["c"]
    assert rest.page_token is None
    create(ns, [*DATASET, "other"])
    with pytest.raises(errors.InvalidInputError, match="page_token"):
        ns.list_table_indices(
            api.ListTableIndicesRequest(id=[*DATASET, "other"], page_token=first.page_token)
        )


def test_lance_s_own_indices_are_not_listed(ns: MemoryNamespace) -> None:
    uri = dataset(ns).uri
    lance.write_dataset(typed_rows(5), uri, mode="append")
    build_index(ns, "id", "BTREE")
    lance.dataset(uri).optimize.compact_files(defer_index_remap=True)
    assert len(dataset(ns).describe_indices()) == 2
    assert names(ns) == ["id_idx"]


# -- describe ------------------------------------------------------------------------------------


def test_statistics_of_a_vector_index_have_its_distance(ns: MemoryNamespace) -> None:
    build_index(ns, "vector", "IVF_FLAT", distance_type="dot", name="v")
    lance.write_dataset(typed_rows(5), dataset(ns).uri, mode="append")
    answer = describe(ns, "v")
    assert (answer.distance_type, answer.index_type) == ("dot", "IVF_FLAT")
    assert (answer.num_indexed_rows, answer.num_unindexed_rows) == (ROWS, 5)
    assert answer.num_indices == 1


def test_statistics_agree_with_lance_s_own(ns: MemoryNamespace) -> None:
    build_index(ns, "id", "BTREE")
    uri = dataset(ns).uri
    lance.write_dataset(typed_rows(5), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id < 10")
    lance.write_dataset(typed_rows(7), uri, mode="append")
    answer, expected = describe(ns, "id_idx"), dataset(ns).stats.index_stats("id_idx")
    for key in ("num_indexed_rows", "num_unindexed_rows", "num_indices"):
        assert getattr(answer, key) == expected[key], key
    assert answer.distance_type is None


# -- drop ----------------------------------------------------------------------------------------


@pytest.mark.spec("operations.md#describetableindexstats", "operations.md#droptableindex")
@pytest.mark.parametrize("call", [describe, drop_index])
def test_a_missing_index_is_not_found(ns: MemoryNamespace, call: Any) -> None:
    for name in ("nope", "", "__lance_frag_reuse"):
        with pytest.raises(errors.TableIndexNotFoundError, match="no index"):
            call(ns, name)
    with pytest.raises(errors.InvalidInputError, match="index_name"):
        call(ns, None)
    assert dataset(ns).version == 1


def test_a_branch_has_indices_of_its_own(ns: MemoryNamespace) -> None:
    dataset(ns).create_branch("dev")
    build_index(ns, "id", "BTREE", branch="dev")
    assert names(ns, branch="dev") == ["id_idx"]
    assert names(ns) == []
    assert describe(ns, "id_idx", branch="dev").num_indexed_rows == ROWS
    drop_index(ns, "id_idx", branch="dev")
    assert names(ns, branch="dev") == []


# -- kinds ---------------------------------------------------------------------------------------


def test_the_kinds_are_all_that_pylance_names() -> None:
    source = inspect.getsource(lance.LanceDataset.create_scalar_index)
    source += inspect.getsource(lance.LanceDataset._prepare_scalar_index_request)
    source += inspect.getsource(lance.LanceDataset._create_index_impl)
    assert all(f'"{kind}"' in source for kind in [*NAMED, *VECTOR])
    listed = source.split("valid_index_types = [")[1].split("]")[0].split()
    assert sorted(name.strip('",') for name in listed) == VECTOR
    listed = source.split("if index_type not in [")[1].split("]")[0].split()
    assert sorted({name.strip('",') for name in listed} - {"INVERTED"}) == NAMED


@pytest.mark.parametrize(
    ("alias", "column", "kind"),
    [("INVERTED", "text", "FTS"), ("SCALAR", "id", "BTREE"), ("labellist", "tags", "LABEL_LIST"),
     ("zone_map", "id", "ZONEMAP"), ("Vector", "vector", "IVF_PQ")],
)  # fmt: skip
def test_other_names_of_the_directory_namespace_are_understood(
    ns: MemoryNamespace, alias: str, column: str, kind: str
) -> None:
    build_index(ns, column, alias)
    assert [index.index_type for index in list_indices(ns).indexes] == [kind]


@pytest.mark.spec("operations.md#createtableindex")
def test_the_error_for_an_unknown_type_lists_the_types(ns: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="it can be BTREE, BITMAP"):
        build_index(ns, "id", "HASH")


# -- columns that fit ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*SCALAR, "IVF_FLAT"])
def test_the_columns_that_fit_are_those_that_pylance_takes(kind: str) -> None:
    described = index_types.parse_index_type(kind)
    for each in STORABLE:
        if isinstance(each, pa.BaseExtensionType):
            array = pa.ExtensionArray.from_storage(each, pa.nulls(3, each.storage_type))
        else:
            array = pa.nulls(3, each)
        found = lance.write_dataset(pa.table({"c": array}), "memory://")
        field: Any = found.lance_schema.field("c")
        fits = described.fits(field.to_arrow())
        if kind == "ZONEMAP" and not fits:
            continue  # Lance takes nested types too, and panics on some of them.
        assert fits == is_taken(found, kind), each


def is_taken(found: lance.LanceDataset, kind: str) -> bool:
    try:
        if kind.startswith("IVF"):
            found.create_index("c", kind, name="i")
        else:
            taken: Any = IndexConfig("fm", {}) if kind == "FM" else kind
            found.create_scalar_index("c", taken, name="i")
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        # It fits, but there is no vector to train with.
        return "cannot train" in str(error)
    return True


@pytest.mark.spec("operations.md#createtableindex", "operations.md#createtablescalarindex")
@pytest.mark.parametrize(
    ("kind", "column"),
    [("BTREE", "tags"), ("BITMAP", "vector"), ("ZONEMAP", "st"), ("BLOOMFILTER", "st"),
     ("LABEL_LIST", "id"), ("NGRAM", "id"), ("MINHASHLSH", "tags"), ("RTREE", "id"),
     ("FTS", "id"), ("IVF_PQ", "id"), ("IVF_FLAT", "tags")],
)  # fmt: skip
def test_a_column_of_the_wrong_type_is_invalid_with_what_fits(
    ns: MemoryNamespace, kind: str, column: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=f"^{kind} is for a"):
        build_index(ns, column, kind)
    assert dataset(ns).version == 1


@pytest.mark.spec("operations.md#createtableindex")
@pytest.mark.parametrize("kind", ["BTREE", "NGRAM", "FTS"])
def test_what_is_inside_a_list_is_invalid(ns: MemoryNamespace, kind: str) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"'tags\.item' is inside 'tags'"):
        build_index(ns, "tags.item", kind)
    assert dataset(ns).version == 1


@pytest.mark.spec("operations.md#createtableindex")
def test_values_that_no_index_can_be_on_are_invalid(namespace: MemoryNamespace) -> None:
    point = {"ARROW:extension:name": "geoarrow.point"}
    schema = pa.schema(
        [
            pa.field("wkt", pa.string()),
            pa.field("wkb", pa.binary()),
            pa.field("point", pa.int64(), metadata=point),
            pa.field("nothing", pa.list_(pa.float32(), 4)),
        ]
    )
    make(namespace, pa.table([["a"], [b"a"], [1], [None]], schema=schema))
    kinds = {"wkt": "RTREE", "wkb": "RTREE", "point": "RTREE", "nothing": "IVF_FLAT"}
    for column, kind in kinds.items():
        with pytest.raises(errors.InvalidInputError, match=f"on column '{column}'"):
            build_index(namespace, column, kind)
    assert dataset(namespace).version == 1


def test_json_and_lists_of_text_can_be_searched(namespace: MemoryNamespace) -> None:
    json = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": "b"}'] * 3))
    make(namespace, typed_rows(3).append_column("json", json))
    build_index(namespace, "json", "FTS")
    build_index(namespace, "tags", "FTS")
    assert len(list_indices(namespace).indexes) == 2


def test_bytes_are_compared_by_hamming_and_lists_of_vectors_by_cosine(
    namespace: MemoryNamespace,
) -> None:
    bits = pa.array([[i % 256] * 8 for i in range(300)], pa.list_(pa.uint8(), 8))
    several = pa.array([[[0.5] * 8] * 2] * 300, pa.list_(pa.list_(pa.float32(), 8)))
    make(namespace, pa.table({"bits": bits, "several": several}))
    build_index(namespace, "bits", "IVF_FLAT", distance_type="hamming", num_partitions=2)
    build_index(namespace, "several", "IVF_FLAT", distance_type="cosine", num_partitions=2)
    version = dataset(namespace).version
    for column, kind, distance in (
        ("bits", "IVF_FLAT", "l2"),
        ("bits", "IVF_SQ", "hamming"),
        ("several", "IVF_FLAT", "l2"),
        ("several", "IVF_FLAT", "hamming"),
    ):
        with pytest.raises(errors.InvalidInputError):
            build_index(namespace, column, kind, name="n", distance_type=distance)
    assert dataset(namespace).version == version


# -- options -------------------------------------------------------------------------------------


def details(ns: MemoryNamespace) -> dict[str, Any]:
    (index,) = dataset(ns).describe_indices()
    return dict(index.details)


def hints(ns: MemoryNamespace) -> dict[str, str]:
    return {k.removeprefix("lance."): v for k, v in details(ns)["runtime_hints"].items()}


def test_every_option_of_the_request_goes_with_some_kind() -> None:
    fields = set(ExtendedIndexRequest.model_fields)
    fields -= {"identity", "context", "id", "branch", "column", "index_type", "name"}
    fields -= {"replace", "lancedb_defaults"}
    kinds = [index_types.parse_index_type(name) for name in [*SCALAR, *VECTOR]]
    assert fields == set().union(*(kind.options for kind in kinds))


def build_extended(ns: MemoryNamespace, column: str, index_type: str, **more: Any) -> None:
    fields = {"id": TABLE, "column": column, "index_type": index_type, **more}
    ns.create_table_index(ExtendedIndexRequest.model_validate(fields))


@pytest.mark.spec("server.md#further-fields")
@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 4}, {}),
        ({"prefix_only": True}, {}),
        ({"block_size": 256}, {}),
        ({"max_token_length": 0}, {"max_token_length": None}),
        ({"max_token_length": 5}, {}),
    ],
)
def test_options_of_full_text_indices_reach_lance(
    ns: MemoryNamespace, options: dict[str, Any], found: dict[str, Any]
) -> None:
    build_extended(ns, "text", "FTS", **options)
    assert details(ns) | options | found == details(ns)


@pytest.mark.spec("server.md#further-fields")
def test_custom_stop_words_are_not_found(ns: MemoryNamespace) -> None:
    build_extended(ns, "text", "FTS", custom_stop_words=["more"])
    assert dataset(ns).to_table(full_text_query="more").num_rows == 0
    assert dataset(ns).to_table(full_text_query="word1").num_rows > 0


@pytest.mark.spec("server.md#further-fields")
@pytest.mark.parametrize(
    "options", [{"block_size": 300}, {"base_tokenizer": "ngram", "min_ngram_length": 9}]
)
def test_options_of_full_text_indices_that_lance_refuses_are_invalid(
    ns: MemoryNamespace, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.InvalidInputError):
        build_extended(ns, "text", "FTS", **options)
    assert dataset(ns).version == 1


@pytest.mark.spec("server.md#further-fields")
@pytest.mark.parametrize(
    ("dimension", "bits", "parts"),
    [(32, 8, 2), (32, 4, 2), (24, 8, 3), (24, 4, 4), (20, 8, 1), (8, None, 1)],
)
def test_lancedbs_default_of_the_parts_of_a_vector(
    namespace: MemoryNamespace, dimension: int, bits: int | None, parts: int
) -> None:
    numbers = pa.array([float(i % 9) for i in range(dimension * 300)], pa.float32())
    vectors = pa.FixedSizeListArray.from_arrays(numbers, dimension)
    make(namespace, pa.table({"vector": vectors}))
    build_extended(namespace, "vector", "IVF_PQ", num_bits=bits, lancedb_defaults=True)
    assert details(namespace)["compression"]["num_sub_vectors"] == parts


def test_options_of_training_reach_lance(ns: MemoryNamespace) -> None:
    build_index(ns, "vector", "IVF_FLAT", num_partitions=3, sample_rate=7, max_iterations=4)
    assert (hints(ns)["ivf.sample_rate"], hints(ns)["ivf.max_iters"]) == ("7", "4")
    (segment,) = dataset(ns).stats.index_stats("vector_idx")["segments"]
    assert segment["num_partitions"] == 3


def test_a_target_size_of_partitions_reaches_lance(ns: MemoryNamespace) -> None:
    build_index(ns, "vector", "IVF_FLAT", target_partition_size=50)
    assert details(ns)["target_partition_size"] == 50


def test_options_of_graphs_and_quantizers_reach_lance(ns: MemoryNamespace) -> None:
    options = {"m": 5, "ef_construction": 33, "num_sub_vectors": 4, "num_bits": 4}
    build_index(ns, "vector", "IVF_HNSW_PQ", **options)
    found = details(ns)
    assert (found["hnsw"]["max_connections"], found["hnsw"]["construction_ef"]) == (5, 33)
    assert found["compression"] == {"type": "pq", "num_bits": 4, "num_sub_vectors": 4}


@pytest.mark.parametrize(("dimension", "parts"), [(16, 16), (32, 16), (24, 12), (7, 7), (34, 2)])
def test_parts_of_vectors_are_sixteen_or_what_divides(dimension: int, parts: int) -> None:
    field = pa.field("v", pa.list_(pa.float32(), dimension))
    request = api.CreateTableIndexRequest(column="v", index_type="IVF_PQ")
    options = index_types.index_options(request, index_types.parse_index_type("IVF_PQ"), field)
    assert options["num_sub_vectors"] == parts


@pytest.mark.spec("operations.md#createtableindex")
@pytest.mark.parametrize(
    ("column", "kind", "options"),
    [
        ("id", "BTREE", {"num_partitions": 2}),
        ("vector", "IVF_FLAT", {"num_bits": 8}),
        ("vector", "IVF_SQ", {"num_bits": 4}),
        ("vector", "IVF_PQ", {"num_bits": 5}),
        ("vector", "IVF_PQ", {"num_sub_vectors": 5}),
        ("vector", "IVF_PQ", {"num_sub_vectors": 32}),
        ("vector", "IVF_RQ", {"num_bits": 10}),
        ("vector", "IVF_HNSW_SQ", {"m": 1}),
        ("vector", "IVF_FLAT", {"num_partitions": 2, "target_partition_size": 9}),
        ("vector", "IVF_FLAT", {"distance_type": "manhattan"}),
        ("vector", "IVF_FLAT", {"distance_type": "hamming"}),
        ("text", "FTS", {"base_tokenizer": "nope"}),
        ("text", "FTS", {"language": "Klingon"}),
    ],
    ids=str,
)
def test_an_option_that_does_not_go_with_the_index_changes_nothing(
    ns: MemoryNamespace, column: str, kind: str, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.InvalidInputError):
        build_index(ns, column, kind, **options)
    assert dataset(ns).version == 1


def test_an_empty_table_can_be_indexed(namespace: MemoryNamespace) -> None:
    make(namespace, typed_rows(1).slice(0, 0))
    for column, kind in (("id", "BTREE"), ("text", "FTS"), ("vector", "IVF_PQ")):
        build_index(namespace, column, kind)
    assert [index.num_indexed_rows for index in list_indices(namespace).indexes] == [0, 0, 0]
