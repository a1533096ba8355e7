"""The types of index that Lance builds: the columns that each fits, and the options it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance_namespace import CreateTableIndexRequest
from pyarrow import types

from ..errors import invalid
from ..requests import FURTHER_INDEX_OPTIONS

Fits = Callable[[pa.Field], bool]

_TEXTS = (types.is_string, types.is_large_string, types.is_string_view)
_BYTES = (types.is_binary, types.is_large_binary, types.is_binary_view)
_LISTS = (types.is_list, types.is_large_list)

_NOT_OPTIONS = frozenset(
    {
        *("identity", "context", "id", "branch", "column", "index_type"),
        *("name", "replace", "lancedb_defaults"),
    }
)  # fields of ExtendedIndexRequest
_IVF = frozenset(
    {"distance_type", "num_partitions", "target_partition_size", "sample_rate", "max_iterations"}
)
_HNSW = frozenset({"m", "ef_construction"})
_PQ = frozenset({"num_sub_vectors", "num_bits"})
_BITS = frozenset({"num_bits"})
_TEXT = frozenset(
    {
        "with_position",
        "base_tokenizer",
        "language",
        "max_token_length",
        "lower_case",
        "stem",
        "remove_stop_words",
        "ascii_folding",
        *FURTHER_INDEX_OPTIONS,
    }
)
DISTANCES = {"l2": "l2", "euclidean": "l2", "cosine": "cosine", "dot": "dot", "hamming": "hamming"}
"""Names of distances in requests, in any letter case, to Lance's names."""
_MAX_DEFAULT_SUB_VECTORS = 16


@dataclass(frozen=True)
class IndexType:
    """One type of index.

    Attributes:
        name: Its name in requests, responses and pylance.
        needs: The types of column that it fits, for messages.
        fits: Whether it fits a column.
        options: The options of CreateTableIndex that it takes.
        bits: The valid ``num_bits``, for a vector index that takes it.
    """

    name: str
    needs: str
    fits: Fits
    options: frozenset[str] = frozenset()
    is_vector: bool = False
    bits: tuple[int, ...] = ()


def stored_type(field: pa.Field) -> pa.DataType:
    """Return a column's type, or the storage type of an extension type."""
    dtype = field.type
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype


def _is_any(dtype: pa.DataType, kinds: Sequence[Callable[[pa.DataType], bool]]) -> bool:
    return any(is_kind(dtype) for is_kind in kinds)


def _of(*kinds: Callable[[pa.DataType], bool]) -> Fits:
    return lambda field: _is_any(stored_type(field), kinds)


def _is_list_of_plain(field: pa.Field) -> bool:
    dtype = stored_type(field)
    return _is_any(dtype, _LISTS) and not types.is_nested(dtype.value_type)


def _is_searchable(field: pa.Field) -> bool:
    dtype = stored_type(field)
    element = dtype.value_type if _is_any(dtype, _LISTS) else dtype
    return _extension(field) == "lance.json" or _is_any(element, _TEXTS)


def _is_geometry(field: pa.Field) -> bool:
    is_plain = _is_any(field.type, (*_TEXTS, *_BYTES))
    return is_plain or _extension(field).startswith("geoarrow.")


def _extension(field: pa.Field) -> str:
    """Return the name of a column's extension type, registered with Arrow or not, or ""."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name: bytes = (field.metadata or {}).get(b"ARROW:extension:name", b"")
    return name.decode(errors="replace")


def vector_of(field: pa.Field) -> pa.DataType | None:
    """Return the type of a column's vectors as a fixed-size list, or None."""
    dtype = stored_type(field)
    if isinstance(field.type, pa.FixedShapeTensorType) and len(field.type.shape) != 1:
        return None
    if types.is_list(dtype):
        dtype = dtype.value_type
    if not types.is_fixed_size_list(dtype):
        return None
    element = dtype.value_type
    is_number = types.is_floating(element) or types.is_uint8(element)
    return dtype if is_number else None


_HAS_ORDER = _of(
    *(types.is_boolean, types.is_integer, types.is_floating, types.is_temporal, types.is_decimal),
    *(types.is_fixed_size_binary, *_TEXTS, *_BYTES),
)
_ORDERED = "a boolean, number, decimal, date, time, text or binary column"
_VECTORS = (
    "a column of vectors: fixed-size lists of float16, float32, float64 or uint8 (or, with cosine, "
    "lists of such)"
)


def _vector_index(name: str, options: frozenset[str] = frozenset(), *bits: int) -> IndexType:
    def fits(field: pa.Field) -> bool:
        return vector_of(field) is not None

    return IndexType(name, _VECTORS, fits, _IVF | options, is_vector=True, bits=bits)


_ALL = (
    IndexType("BTREE", _ORDERED, _HAS_ORDER),
    IndexType("BITMAP", _ORDERED, _HAS_ORDER),
    IndexType("ZONEMAP", _ORDERED, _HAS_ORDER),
    IndexType(
        "BLOOMFILTER",
        "an integer, float32, float64, date, time, timestamp, text or binary column",
        _of(
            *(types.is_integer, types.is_float32, types.is_float64, types.is_date, types.is_time),
            *(types.is_timestamp, types.is_interval, *_TEXTS, *_BYTES),
        ),
    ),
    IndexType("LABEL_LIST", "a column of lists of values that are not nested", _is_list_of_plain),
    IndexType("NGRAM", "a text column", _of(*_TEXTS)),
    IndexType("MINHASHLSH", "a text column", _of(*_TEXTS)),
    IndexType("FM", "a text or binary column", _of(*_TEXTS, *_BYTES)),
    IndexType("RTREE", "a geometry: a geoarrow column, WKB or WKT", _is_geometry),
    IndexType("FTS", "a column of text, of lists of text, or of JSON", _is_searchable, _TEXT),
    _vector_index("IVF_FLAT"),
    _vector_index("IVF_SQ", _BITS, 8),
    _vector_index("IVF_PQ", _PQ, 4, 8),
    _vector_index("IVF_RQ", _BITS, *range(1, 10)),
    _vector_index("IVF_HNSW_FLAT", _HNSW),
    _vector_index("IVF_HNSW_SQ", _HNSW | _BITS, 8),
    _vector_index("IVF_HNSW_PQ", _HNSW | _PQ, 4, 8),
)
_BY_NAME = {index_type.name.replace("_", ""): index_type for index_type in _ALL}
_ALIASES = {"INVERTED": "FTS", "SCALAR": "BTREE", "VECTOR": "IVFPQ"}
"""Other accepted names, some of which Lance uses."""


def parse_index_type(name: str) -> IndexType:
    """Return the index type of a name from a request or from Lance, in any letter case.

    Raises InvalidInput (13).
    """
    index_type = _find(name)
    if index_type is None:
        raise invalid(
            f"index_type {name[:60]!r} is not known: it can be "
            + ", ".join(index_type.name for index_type in _ALL)
        )
    return index_type


def to_request_name(name: str) -> str:
    """Return the name in requests for Lance's name of an index type."""
    index_type = _find(name)
    return name if index_type is None else index_type.name


def _find(name: str) -> IndexType | None:
    plain = name.upper().replace("_", "")
    return _BY_NAME.get(_ALIASES.get(plain, plain))


def index_options(
    request: CreateTableIndexRequest, index_type: IndexType, field: pa.Field
) -> dict[str, Any]:
    """Return a request's options under pylance's names, with those that pylance requires.

    Raises:
        InvalidInputError: (13) an option does not fit the type of index, another option or the
            column.
    """
    given = {
        name: value for name, value in request if name not in _NOT_OPTIONS and value is not None
    }
    for name in sorted(given):
        if name not in index_type.options:
            takes = ", ".join(sorted(index_type.options)) or "no options"
            raise invalid(f"{name} does not apply to {index_type.name}, which takes {takes}")
    if given.get("max_token_length") == 0:
        given["max_token_length"] = None  # no limit; a limit of 0 would leave no words
    if not index_type.is_vector:
        return given
    if "num_sub_vectors" in index_type.options and getattr(request, "lancedb_defaults", False):
        given.setdefault("num_sub_vectors", _lancedb_sub_vectors(given.get("num_bits"), field))
    return _vector_options(given, index_type, field)


def _vector_options(
    given: dict[str, Any], index_type: IndexType, field: pa.Field
) -> dict[str, Any]:
    if "num_partitions" in given and "target_partition_size" in given:
        raise invalid("num_partitions and target_partition_size exclude each other")
    bits = given.get("num_bits")
    if bits is not None and bits not in index_type.bits:
        allowed = " or ".join(map(str, index_type.bits))
        raise invalid(f"num_bits of {index_type.name} can be {allowed}, not {bits}")
    options = {**given, "metric": _distance(given.pop("distance_type", "l2"), index_type, field)}
    options.pop("distance_type", None)
    if "max_iterations" in options:
        # pylance ignores ``max_iterations``.
        options["max_iters"] = options.pop("max_iterations")
    if "num_sub_vectors" in index_type.options:
        options["num_sub_vectors"] = _sub_vectors(given.get("num_sub_vectors"), field)
    return options


def _distance(name: str, index_type: IndexType, field: pa.Field) -> str:
    distance = DISTANCES.get(name.lower())
    if distance is None:
        raise invalid(
            f"distance_type {name[:60]!r} is not known: it can be l2, cosine, dot, hamming"
        )
    vector = vector_of(field)
    if vector is not None and types.is_uint8(vector.value_type):
        if distance != "hamming" or index_type.name not in {"IVF_FLAT", "IVF_HNSW_FLAT"}:
            raise invalid(
                "An index on vectors of uint8 is IVF_FLAT or IVF_HNSW_FLAT with distance_type "
                f"hamming, not {index_type.name} with {distance}"
            )
    elif distance == "hamming":
        raise invalid("distance_type hamming is for vectors of uint8, not of floats")
    if types.is_list(stored_type(field)) and distance != "cosine":
        raise invalid(f"distance_type for lists of vectors is cosine, not {distance}")
    return distance


def _lancedb_sub_vectors(bits: int | None, field: pa.Field) -> int:
    """Return LanceDB's default. Source: ``get_num_sub_vectors`` of its ``table.rs``."""
    vector = vector_of(field)
    dimension = 1 if vector is None else int(vector.list_size)
    parts = next((dimension // size for size in (16, 8) if dimension % size == 0), 1)
    return parts + parts % 2 if bits == 4 else parts


def _sub_vectors(given: int | None, field: pa.Field) -> int:
    """Return how many parts product quantization cuts a vector into.

    The default is the greatest divisor of the dimension that is at most 16, as in Lance's directory
    namespace if 16 divides it.
    """
    vector = vector_of(field)
    dimension = 1 if vector is None else int(vector.list_size)
    if given is None:
        most = min(_MAX_DEFAULT_SUB_VECTORS, dimension)
        return next(parts for parts in range(most, 0, -1) if dimension % parts == 0)
    if dimension % given:
        raise invalid(
            f"num_sub_vectors must divide the dimension {dimension}, and {given} does not"
        )
    return given
