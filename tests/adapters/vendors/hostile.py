"""Names and locations made to be misread: by patterns, variables, quotes and encodings."""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.credentials.scope import StoragePrefix, storage_prefix

COUNTS = [500, pytest.param(10_000, marks=pytest.mark.slow)]
"""How many locations a test generates."""
_PIECES = [
    "*", "**", "?", "$", "${", "}", "${*}", "${?}", "${$}", "${aws:username}", "$${*}", "{*}", '"',
    "'", "\\", '\\"', '")||true||("', "a", "b", "t", "t.lance", "_versions", ".manifest", "%",
    "%2A", "+", " ", "~", "|", "^", "[a-z]", "<", "é", "ü", "\u202e", "😀", "\ufeff",
    "\uff10", "-", ".", "//", "../", "/", "/", "#", "&", "=", ",", ":", ";", "@", "`", "\u0301",
]  # fmt: skip


def locations(count: int, scheme: str, seed: int = 16) -> Iterator[tuple[str, StoragePrefix]]:
    """Yield random locations below ``<scheme>://bucket/lake`` that a catalog's entry can have."""
    random_source = random.Random(seed)
    found = 0
    while found < count:
        name = "".join(random_source.choices(_PIECES, k=random_source.randint(1, 6)))
        spelled = quote(name, safe="/") if random_source.random() < 0.5 else name
        location = f"{scheme}://bucket/lake/{spelled}"
        try:
            place = storage_prefix(location)
        except InvalidInputError:
            continue
        found += 1
        yield location, place


def own_keys(prefix: str) -> list[str]:
    """Return keys of a table's own objects."""
    return [f"{prefix}/data/1.lance", f"{prefix}/_versions/1.manifest-x", f"{prefix}/a*b?c${{d}}"]


def other_keys(prefix: str, seed: int) -> Iterator[str]:
    """Yield keys of objects outside a table that a careless pattern would match."""
    random_source = random.Random(seed)
    parts = prefix.split("/")
    yield prefix
    yield f"{prefix}2/data/1.lance"
    yield f"{prefix}/../other/1.lance".replace("/../", "-/")
    yield "/".join([*parts[:-1], "other.lance/data/1.lance"])
    for old, new in (("*", "xy"), ("?", "x"), ("${", "x"), ("${*}", "*"), ("$", ""), ("\\", "")):
        yield f"{prefix.replace(old, new)}/data/1.lance"
    at = random_source.randrange(len(prefix))
    yield f"{prefix[:at]}z{prefix[at + 1 :]}/data/1.lance"
    yield f"{prefix.swapcase()}/data/1.lance"


def is_own(prefix: str, key: str) -> bool:
    """Return whether an object is in a table."""
    return key.startswith(f"{prefix}/")
