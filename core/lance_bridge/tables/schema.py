"""An Arrow schema as the specification's JSON (JsonArrowSchema), in Arrow's own type names.

The names are those that pylance's directory namespace answers with, so that a client reads every
namespace alike. Like there, units, zones and dictionaries are not told; a decimal's ``length`` is
``precision * 1000 + scale``.
"""

from __future__ import annotations

import pyarrow as pa
from lance_namespace_urllib3_client.models import (
    JsonArrowDataType,
    JsonArrowField,
    JsonArrowSchema,
)

_NAMES = {
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "string": "utf8",
    "large_string": "large_utf8",
    "string_view": "utf8_view",
}


def to_json(schema: pa.Schema) -> JsonArrowSchema:
    """Return the JSON form of ``schema``."""
    return JsonArrowSchema(
        fields=[_field(field) for field in schema], metadata=_texts(schema.metadata)
    )


def _field(field: pa.Field) -> JsonArrowField:
    kind, metadata = field.type, dict(field.metadata or {})
    if isinstance(kind, pa.BaseExtensionType):
        # In the JSON form an extension is its storage with two more entries, as in Arrow IPC.
        metadata[b"ARROW:extension:name"] = kind.extension_name.encode()
        # Arrow's own extensions do not tell theirs.
        serialize = getattr(kind, "__arrow_ext_serialize__", bytes)
        metadata[b"ARROW:extension:metadata"] = serialize()
        kind = kind.storage_type
    return JsonArrowField(
        name=field.name,
        nullable=field.nullable,
        type=_type(kind),
        metadata=_texts(metadata),
    )


def _type(kind: pa.DataType) -> JsonArrowDataType:
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    if pa.types.is_decimal(kind):
        name = f"decimal{kind.bit_width}"
        return JsonArrowDataType(type=name, length=kind.precision * 1000 + kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return JsonArrowDataType(type="fixed_size_binary", length=kind.byte_width)
    if pa.types.is_map(kind):
        entries = pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)
        return JsonArrowDataType(type="map", fields=[_field(entries)])
    if pa.types.is_nested(kind):
        fixed = pa.types.is_fixed_size_list(kind)
        return JsonArrowDataType(
            type=_plain_name(kind),
            fields=[_field(kind.field(i)) for i in range(kind.num_fields)],
            length=kind.list_size if fixed else None,
        )
    return JsonArrowDataType(type=_plain_name(kind))


def _plain_name(kind: pa.DataType) -> str:
    """Return a type's name without its parameters: ``timestamp[us]`` is ``timestamp``."""
    name = str(kind).split("[", 1)[0].split("<", 1)[0]
    return _NAMES.get(name, name)


def _texts(metadata: dict[bytes, bytes] | None) -> dict[str, str] | None:
    if not metadata:
        return None
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in metadata.items()}
