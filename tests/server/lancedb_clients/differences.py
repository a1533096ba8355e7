"""What is tried of every parameter of LanceDB's table, on a directory and through a gateway.

Each case is named ``owner.parameter``: a method of the table or a class of its queries or indices,
and a parameter of it or a method of a builder. `unknown` names those that have no case yet.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import lancedb.index as indices
import lancedb.query as queries
import pyarrow as pa
from lancedb.expr import col
from lancedb.merge import LanceMergeInsertBuilder
from lancedb.remote.table import RemoteTable
from lancedb.rerankers import RRFReranker
from lancedb.table import LanceTable

Table = Any
Action = Callable[[Table], Any]
Samples = Mapping[str, Any]

COUNT = 300
DIMENSION = 16
VECTOR = [1.0] * DIMENSION
SOON = timedelta(seconds=60)
ELEMENT = queries.DocumentGranularity.LIST_ELEMENT


def rows(count: int = COUNT, first: int = 0) -> pa.Table:
    """Rows with the ids from ``first``."""
    ids = range(first, first + count)
    vectors = [[float(i % 17), float(i % 5), float(i), 1.0] * (DIMENSION // 4) for i in ids]
    struct = pa.struct([("a", pa.int32()), ("b", pa.string())])
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "title": [f"film number{i} the running dog café" for i in ids],
            "tags": [[f"t{i % 3}"] for i in ids],
            "vector": pa.array(vectors, pa.list_(pa.float32(), DIMENSION)),
            "s": pa.array([{"a": i, "b": str(i)} for i in ids], struct),
            "price": [i / 2 for i in ids],
        }
    )


def _parameters(function: Callable[..., Any]) -> list[str]:
    return [each for each in inspect.signature(function).parameters if each != "self"]


# -- the methods of a table ------------------------------------------------------------------------


class With(dict[str, Any]):
    """Arguments of one call, in place of one value."""


_NGRAM = {"base_tokenizer": "ngram"}
METHODS: dict[str, tuple[Samples, Samples]] = {
    "create_index": (
        {},
        {
            "metric": With(metric="cosine"),
            "num_partitions": With(num_partitions=2),
            "num_sub_vectors": With(num_sub_vectors=4),
            "vector_column_name": "vector",
            "replace": True,
            "accelerator": "cuda",
            "index_cache_size": 10,
            "num_bits": 4,
            **{f"index_type={each}": With(index_type=each, num_partitions=2) for each in (
                "IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ", "IVF_HNSW_PQ",
                "IVF_HNSW_FLAT",
            )},
            "max_iterations": 10,
            "sample_rate": 128,
            "m": With(index_type="IVF_HNSW_SQ", m=10),
            "ef_construction": With(index_type="IVF_HNSW_SQ", ef_construction=50),
            "config": With(metric="id", config=indices.BTree()),
            "wait_timeout": With(metric="id", config=indices.BTree(), wait_timeout=SOON),
            "name": "other",
            "train": With(metric="id", config=indices.BTree(), train=False),
            "target_partition_size": 100,
        },
    ),
    "create_fts_index": (
        {},
        {
            "field_names": With(args=("title",)),
            "column": With(args=("title",)),
            "ordering_field_names": With(args=("title",), ordering_field_names=["id"]),
            "replace": With(args=("title",), replace=True),
            "writer_heap_size": With(args=("title",), writer_heap_size=1 << 20),
            "use_tantivy": With(args=("title",), use_tantivy=False),
            "tokenizer_name": With(args=("title",), tokenizer_name="en_stem"),
            "with_position": With(args=("title",), with_position=True),
            **{f"base_tokenizer={each}": With(args=("title",), base_tokenizer=each) for each in (
                "raw", "whitespace", "ngram", "icu", "icu/split",
            )},
            "language": With(args=("title",), language="French"),
            "max_token_length": With(args=("title",), max_token_length=5),
            "max_token_length=None": With(args=("title",), max_token_length=None),
            "lower_case": With(args=("title",), lower_case=False),
            "stem": With(args=("title",), stem=False),
            "remove_stop_words": With(args=("title",), remove_stop_words=False),
            "custom_stop_words": With(args=("title",), custom_stop_words=["film"]),
            "ascii_folding": With(args=("title",), ascii_folding=False),
            "ngram_min_length": With(args=("title",), ngram_min_length=2, **_NGRAM),
            "ngram_min_length=2": With(args=("title",), ngram_min_length=2),
            "ngram_max_length": With(args=("title",), ngram_max_length=5, **_NGRAM),
            "prefix_only": With(args=("title",), prefix_only=True, **_NGRAM),
            "block_size": With(args=("title",), block_size=256),
            "document_granularity": With(args=("tags",), document_granularity=ELEMENT),
            "name": With(args=("title",), name="other"),
            "wait_timeout": With(args=("title",), wait_timeout=SOON),
        },
    ),
    "create_scalar_index": (
        {},
        {
            "column": With(args=("s.a",)),
            "replace": With(args=("id",), replace=True),
            "index_type=BTREE": With(args=("id",), index_type="BTREE"),
            "index_type=BITMAP": With(args=("id",), index_type="BITMAP"),
            "index_type=LABEL_LIST": With(args=("tags",), index_type="LABEL_LIST"),
            "name": With(args=("id",), name="other"),
            "wait_timeout": With(args=("id",), wait_timeout=SOON),
        },
    ),
    "add_columns": (
        {},
        {
            "transforms": With(args=({"x": "id * 2"},)),
            "transforms=fields": With(args=([pa.field("x", pa.int8()), pa.field("y", pa.utf8())],)),
            "transforms=schema": With(args=(pa.schema([("x", pa.timestamp("ns", "UTC"))]),)),
            "computed": With(computed={"x": "id * 2"}),
            **{f"transforms={each}": With(args=(pa.field("x", each),)) for each in (
                pa.struct([("q", pa.int32())]), pa.large_list(pa.int32()), pa.binary(4),
                pa.uuid(), pa.json_(), pa.map_(pa.string(), pa.int32()),
                pa.list_(pa.field("element", pa.int32())), pa.null(),
            )},
            "transforms=metadata": With(args=(pa.field("x", pa.int32(), metadata={"a": "b"}),)),
            "transforms=field of a struct": With(
                args=(pa.field("s", pa.struct([("c", pa.int32())])),)
            ),
        },
    ),
    "alter_columns": (
        {},
        {
            "alterations": With(args=({"path": "title", "rename": "other"},)),
            "alterations=nullable": With(args=({"path": "price", "nullable": False},)),
            "alterations=field": With(args=({"path": "s.a", "rename": "z"},)),
            **{f"alterations={path} {kind}": With(args=({"path": path, "data_type": kind},))
               for path, kind in (
                   ("price", pa.float32()), ("s.a", pa.int64()), ("title", pa.large_string()),
                   ("vector", pa.list_(pa.float64(), DIMENSION)),
                   ("title", pa.dictionary(pa.int32(), pa.string())),
               )},
        },
    ),
    "drop_columns": ({}, {"columns": With(args=(["s.a", "price"],))}),
    "update": (
        {"where": "id = 1", "values": {"title": "it's"}},
        {
            "where": With(where="id > 5", values={"price": 1.0}),
            "where=expression": With(where=col("id") == 1, values={"price": 1.0}),
            "values": {"title": None, "vector": VECTOR, "s": {"a": 1, "b": "x"}},
            "values_sql": With(where="id = 1", values=None, values_sql={"price": "price * 2"}),
        },
    ),
    "delete": (
        {},
        {
            "where": With(args=("id < 5",)),
            "where=expression": With(args=(col("id") < 5,)),
            "predicate": With(args=("id < 5",)),
        },
    ),
    "count_rows": ({}, {"filter": "id < 5"}),
    "optimize": (
        {},
        {"cleanup_older_than": timedelta(days=1), "delete_unverified": False, "retrain": True},
    ),
}  # fmt: skip


def _methods() -> Iterator[tuple[str, Action]]:
    for method, (base, samples) in METHODS.items():
        for name, sample in samples.items():
            given = dict(sample) if isinstance(sample, With) else {**base, name: sample}
            yield f"{method}.{name}", _call_of(method, given)


def _call_of(method: str, given: dict[str, Any]) -> Action:
    keywords = {name: value for name, value in given.items() if name != "args"}
    return lambda table: getattr(table, method)(*given.get("args", ()), **keywords)


# -- merges ----------------------------------------------------------------------------------------


def _merge(build: Callable[[Any], Any], on: Any = "id", **options: Any) -> Action:
    return lambda table: build(table.merge_insert(on)).execute(rows(2, COUNT - 1), **options)


def _upsert(merge: Any) -> Any:
    return merge.when_matched_update_all().when_not_matched_insert_all()


_NEW = {"id": 999, "title": "short", "vector": [1.0], "tags": [], "s": None, "price": 1.0}
MERGES: dict[str, Action] = {
    "on": _merge(_upsert),
    "on=columns": _merge(lambda merge: merge.when_not_matched_insert_all(), ["id", "title"]),
    "when_matched_update_all": _merge(
        lambda merge: merge.when_matched_update_all(where="target.id > 5")
    ),
    "when_not_matched_insert_all": _merge(lambda merge: merge.when_not_matched_insert_all()),
    "when_not_matched_by_source_delete": _merge(
        lambda merge: _upsert(merge).when_not_matched_by_source_delete("id < 5")
    ),
    "when_not_matched_by_source_delete=all": _merge(
        lambda merge: _upsert(merge).when_not_matched_by_source_delete()
    ),
    "use_index": _merge(lambda merge: _upsert(merge).use_index(False)),
    "use_lsm": _merge(lambda merge: _upsert(merge).use_lsm(False)),
    "validate_single_shard": _merge(lambda merge: _upsert(merge).validate_single_shard(False)),
    "execute.new_data": lambda table: (
        table.merge_insert("id")
        .when_matched_update_all()
        .execute(pa.table({"id": pa.array([1], pa.int64()), "price": [9.5]}))
    ),
    "execute.on_bad_vectors": lambda table: _upsert(table.merge_insert("id")).execute(
        [_NEW], on_bad_vectors="drop"
    ),
    "execute.fill_value": lambda table: _upsert(table.merge_insert("id")).execute(
        [_NEW], on_bad_vectors="fill", fill_value=2.0
    ),
    "execute.timeout": _merge(_upsert, timeout=SOON),
}
_MERGE_PARAMETERS = [
    *(f"execute.{each}" for each in _parameters(LanceMergeInsertBuilder.execute)),
    *(each for each in dir(LanceMergeInsertBuilder) if each[0] != "_"),
    "on",
]


# -- indices ---------------------------------------------------------------------------------------

CONFIGS: dict[type[Any], tuple[str, Samples]] = {
    **{each: ("vector", {
        "distance_type": "cosine", "num_partitions": 2, "num_sub_vectors": 2, "num_bits": bits,
        "max_iterations": 10, "sample_rate": 128, "target_partition_size": 100,
        "accelerator": "cuda", "m": 10, "ef_construction": 50,
    }) for each, bits in (
        (indices.IvfFlat, 8), (indices.IvfSq, 8), (indices.IvfPq, 4), (indices.IvfRq, 8),
        (indices.HnswPq, 8), (indices.HnswSq, 8), (indices.HnswFlat, 8),
    )},
    indices.BTree: ("id", {}),
    indices.Bitmap: ("id", {}),
    indices.LabelList: ("tags", {}),
    indices.Fm: ("title", {}),
    indices.FTS: ("title", {
        "with_position": True, "base_tokenizer": "whitespace", "language": "French",
        "max_token_length": 5, "lower_case": False, "stem": False, "remove_stop_words": False,
        "ascii_folding": False, "ngram_min_length": 2, "ngram_max_length": 5, "prefix_only": True,
        "block_size": 256, "custom_stop_words": ["film"], "memory_limit": 100, "num_workers": 1,
        "document_granularity": queries.DocumentGranularity.ROW,
    }),
}  # fmt: skip


def _configs() -> Iterator[tuple[str, Action]]:
    for config, (column, samples) in CONFIGS.items():
        yield f"{config.__name__}.", _index(config, column, {})
        for name in _parameters(config):
            if name in samples:
                yield f"{config.__name__}.{name}", _index(config, column, {name: samples[name]})


def _index(config: type[Any], column: str, options: dict[str, Any]) -> Action:
    return lambda table: table.create_index(column, config=config(**options))


# -- queries: on tables that nothing changes -------------------------------------------------------

_ORDER = [queries.ColumnOrdering(column_name="id", ascending=False)]
_ANY: dict[str, Callable[[Any], Any]] = {
    "analyze_plan": lambda query: bool(query.analyze_plan()),
    "bypass_vector_index": lambda query: query.bypass_vector_index(),
    "distance_range": lambda query: query.distance_range(1, 2000),
    "distance_type": lambda query: query.distance_type("cosine"),
    "ef": lambda query: query.ef(30),
    "explain_plan": lambda query: bool(query.explain_plan(True)),
    "fast_search": lambda query: query.fast_search(),
    "fragment_ids": lambda query: query.fragment_ids([0]),
    "limit": lambda query: query.limit(3),
    "maximum_nprobes": lambda query: query.maximum_nprobes(20),
    "metric": lambda query: query.metric("dot"),
    "minimum_nprobes": lambda query: query.minimum_nprobes(2),
    "nprobes": lambda query: query.nprobes(3),
    "offset": lambda query: query.offset(2),
    "order_by": lambda query: query.order_by(_ORDER),
    "output_schema": lambda query: query.output_schema().names,
    "phrase_query": lambda query: query.phrase_query(),
    "refine_factor": lambda query: query.refine_factor(2),
    "rerank": lambda query: query.rerank(RRFReranker()),
    "select": lambda query: query.select({"id": "id", "twice": "id * 2"}),
    "text": lambda query: query.text("number7"),
    "to_arrow": lambda query: query.to_arrow(timeout=SOON)["id"].to_pylist(),
    "to_batches": lambda query: [
        each for batch in query.to_batches(2) for each in batch.column("id").to_pylist()
    ],
    "to_df": lambda query: list(query.to_df()["id"]),
    "to_list": lambda query: [each["id"] for each in query.to_list(timeout=SOON)],
    "to_pandas": lambda query: list(query.to_pandas(flatten=True, timeout=SOON)["s.a"]),
    "to_query_object": lambda query: type(query.to_query_object()).__name__,
    "use_lsm": lambda query: query.use_lsm(False),
    "vector": lambda query: query.vector(VECTOR),
    "where": lambda query: query.where("id > 3", prefilter=True),
    "where=after": lambda query: query.where("id > 3", prefilter=False),
    "where=expression": lambda query: query.where(col("id") > 3),
    "with_row_address": lambda query: (
        "_rowaddr" in query.with_row_address().to_arrow().schema.names
    ),
    "with_row_id": lambda query: query.with_row_id(True),
}
NOT_TRIED = {
    "create": "a constructor",
    "to_polars": "an output of the client, like to_arrow",
    "to_pydantic": "an output of the client, like to_list",
    "with_fragments": "takes fragments of pylance's dataset",
}
BUILDERS: dict[str, tuple[type[Any], Action]] = {
    "vector search": (queries.LanceVectorQueryBuilder, lambda table: table.search(VECTOR).limit(5)),
    "text search": (
        queries.LanceFtsQueryBuilder,
        lambda table: table.search("number7 number8", query_type="fts").limit(5),
    ),
    "hybrid search": (
        queries.LanceHybridQueryBuilder,
        lambda table: table.search(query_type="hybrid").vector(VECTOR).text("number7").limit(5),
    ),
    "query": (queries.LanceEmptyQueryBuilder, lambda table: table.search().limit(5)),
}


def _builders() -> Iterator[tuple[str, Action]]:
    for name, (builder, start) in BUILDERS.items():
        for method, apply in _ANY.items():
            if hasattr(builder, method.partition("=")[0]):
                yield f"{name}.{method}", _ask_of(start, apply)


def _ask_of(start: Action, apply: Callable[[Any], Any]) -> Action:
    return lambda table: _ids(apply(start(table)))


def _ids(found: Any) -> Any:
    """Return the sorted ids of a query's rows, or what is not a query."""
    if not isinstance(found, queries.LanceQueryBuilder):
        return found
    return sorted(each["id"] for each in found.to_list())


_MATCH = queries.MatchQuery("number7", "title")
_FILM = queries.MatchQuery("film", "title")
_AND = queries.FullTextOperator.AND
TEXTS: dict[type[Any], dict[str, dict[str, Any]]] = {
    queries.MatchQuery: {
        "query": {}, "column": {}, "boost": {"boost": 2.0}, "fuzziness": {"fuzziness": 1},
        "max_expansions": {"fuzziness": 1, "max_expansions": 5},
        "operator": {"query": "number7 film", "operator": _AND},
        "prefix_length": {"fuzziness": 1, "prefix_length": 2},
        "document_granularity": {"document_granularity": queries.DocumentGranularity.ROW},
        "document_granularity=element": {
            "query": "t1", "column": "tags", "document_granularity": ELEMENT,
        },
    },
    queries.PhraseQuery: {
        "query": {"query": "film number7"}, "column": {},
        "slop": {"query": "number7 film", "slop": 3},
        "document_granularity": {"document_granularity": queries.DocumentGranularity.ROW},
    },
    queries.BoostQuery: {
        "positive": {}, "negative": {}, "negative_boost": {"negative_boost": 0.2},
    },
    queries.MultiMatchQuery: {
        "query": {}, "columns": {}, "boosts": {"boosts": [2.0]},
        "operator": {"query": "number7 film", "operator": _AND},
    },
    queries.BooleanQuery: {"queries": {}},
}  # fmt: skip
_TEXT_ARGUMENTS: dict[type[Any], dict[str, Any]] = {
    queries.MatchQuery: {"query": "number7", "column": "title"},
    queries.PhraseQuery: {"query": "number7", "column": "title"},
    queries.BoostQuery: {"positive": _MATCH, "negative": _FILM},
    queries.MultiMatchQuery: {"query": "number7", "columns": ["title"]},
    queries.BooleanQuery: {
        "queries": [(queries.Occur.MUST, _MATCH), (queries.Occur.SHOULD, _FILM)]
    },
}
SEARCHES: dict[str, Action] = {
    "query": lambda table: _ids(table.search([VECTOR, VECTOR]).limit(2)),
    "vector_column_name": lambda table: _ids(table.search(VECTOR, "vector").limit(5)),
    "query_type": lambda table: _ids(table.search("number7", query_type="fts").limit(5)),
    "ordering_field_name": lambda table: _ids(table.search(ordering_field_name="id").limit(3)),
    "fts_columns": lambda table: _ids(
        table.search("number7", query_type="fts", fts_columns=["title"]).limit(5)
    ),
    "fast_search": lambda table: _ids(table.search(VECTOR, fast_search=True).limit(5)),
}


def _texts() -> Iterator[tuple[str, Action]]:
    for query, samples in TEXTS.items():
        for name, options in samples.items():
            text = query(**{**_TEXT_ARGUMENTS[query], **options})
            yield f"{query.__name__}.{name}", _search_of(text)


def _search_of(text: Any) -> Action:
    return lambda table: _ids(table.search(text, query_type="fts").limit(5))


# -- all of them -----------------------------------------------------------------------------------

CHANGES: dict[str, Action] = {
    **dict(_methods()),
    **{f"merge_insert.{name}": action for name, action in MERGES.items()},
    **dict(_configs()),
}
"""The cases that need a table of their own."""
READS: dict[str, Action] = {
    **dict(_builders()),
    **dict(_texts()),
    **{f"search.{name}": action for name, action in SEARCHES.items()},
}


def unknown() -> list[str]:
    """Return the parameters that no case tries."""
    tried = {name.partition("=")[0] for name in (*CHANGES, *READS)}
    wanted = {
        f"{method}.{name}"
        for method in (*METHODS, "search")
        for table in (LanceTable, RemoteTable)
        for name in _parameters(getattr(table, method))
    }
    wanted |= {f"merge_insert.{name}" for name in _MERGE_PARAMETERS}
    classes = [each for each in vars(indices).values() if _is_config(each)]
    wanted |= {
        f"{each.__name__}.{p}" for each in classes for p in inspect.signature(each).parameters
    }
    texts = [each for each in vars(queries).values() if _is_text(each)]
    wanted |= {f"{each.__name__}.{p}" for each in texts for p in inspect.signature(each).parameters}
    wanted |= {
        f"{name}.{method}"
        for name, (builder, _) in BUILDERS.items()
        for method in dir(builder)
        if method[0] != "_" and method not in NOT_TRIED
    }
    return sorted(wanted - tried - {"merge_insert.execute"})


def _is_config(found: Any) -> bool:
    is_class = inspect.isclass(found) and found.__module__ == indices.__name__
    return is_class and found not in (indices.IndexConfig,) and not hasattr(found, "__members__")


def _is_text(found: Any) -> bool:
    is_class = inspect.isclass(found) and issubclass(found, queries.FullTextQuery)
    return is_class and found is not queries.FullTextQuery
