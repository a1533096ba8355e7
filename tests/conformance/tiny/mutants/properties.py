"""Adapters that lose or change properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lance_bridge import NamespaceRecord
from lance_bridge.catalog import RESERVED_PREFIX

from . import wrong_answers, wrong_arguments

Properties = Mapping[str, str]


def stored(change: Callable[[Properties], Properties]) -> Callable[..., Any]:
    """Return what changes the options of the fields that the server is to hold."""
    return lambda fields, _: {**fields, "options": change(fields["options"])}


def shown(change: Callable[[Properties], Properties]) -> Callable[..., Any]:
    """Return what changes the properties of a record."""
    return lambda found, *_: found.with_properties(change(found.properties))


def unreserved(properties: Properties) -> Properties:
    return {k: v for k, v in properties.items() if not k.startswith(RESERVED_PREFIX)}


wrong_answers(__name__, "fields", {
    "Cuts values at 255 characters.": stored(lambda all: {k: v[:255] for k, v in all.items()}),
    "Leaves out what is empty.": stored(lambda all: {k: v for k, v in all.items() if v}),
    "Loses what is not ASCII.": stored(
        lambda all: {k: v.encode("ascii", "replace").decode() for k, v in all.items()}
    ),
    "Keeps keys in lower case.": stored(lambda all: {k.lower(): v for k, v in all.items()}),
})  # fmt: skip
wrong_answers(__name__, "record", {
    "Strips white space around values.": shown(lambda all: {k: v.strip() for k, v in all.items()}),
    "Hides lance_bridge.* as if they were its own.": shown(unreserved),
    "Shows what the server keeps for itself among the properties.": lambda found, _, row: (
        found.with_properties({**found.properties, "etag": row["etag"]})
    ),
    "Gives None where an entry has no properties but its marks.": lambda found, *_: (
        replace(found, properties=None)
        if set(found.properties) <= {"table_type", "managed_by"}
        else found
    ),
})  # fmt: skip
wrong_answers(__name__, "entries", {
    "Shows lance_bridge.* when an entry is loaded, and not when it is scanned.": lambda found, _: (
        each.with_properties(unreserved(each.properties)) for each in found
    ),
})  # fmt: skip
wrong_arguments(__name__, "alter_table", {
    "Cuts values at 4000 characters, when an entry changes only.": lambda _, record: [
        record.with_properties({k: v[:4000] for k, v in record.properties.items()})
    ],
    "Keeps properties that an alter leaves out.": lambda catalog, record: [
        record.with_properties({**catalog.load_table(record.path).properties, **record.properties})
    ],
    "Changes properties, and takes no notice of the location.": lambda catalog, record: [
        replace(record, location=catalog.load_table(record.path).location)
    ],
})  # fmt: skip
wrong_arguments(__name__, "alter_namespace", {
    "Keeps a schema's properties that an alter leaves out.": lambda catalog, record: [
        NamespaceRecord(
            record.path, {**catalog.load_namespace(record.path).properties, **record.properties}
        )
    ],
})  # fmt: skip
