"""What is tried of every public method of LanceDB's catalogs, which ``connect_catalog`` returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from server.lancedb_clients.trials import done, rows, value_of


@dataclass(frozen=True)
class CatalogScene:
    """A catalog, the name of a database in it, and a name that no database has."""

    catalog: Any
    url: str
    existing: str
    free: str

    async def names(self) -> list[str]:
        return list((await done(self.catalog.list_databases())).databases)


async def _a_database_is_created(scene: CatalogScene) -> None:
    db = await done(scene.catalog.create_database(scene.free))
    assert await done((await done(db.create_table("t", rows(2)))).count_rows()) == 2
    with pytest.raises(ValueError, match="already exists"):
        await done(scene.catalog.create_database(scene.free))
    await done(scene.catalog.create_database(scene.free, exist_ok=True))
    assert {scene.free, scene.existing} <= set(await scene.names())
    await done(db.drop_table("t"))


async def _a_database_is_opened(scene: CatalogScene) -> None:
    db = await done(scene.catalog.connect_database(scene.existing))
    assert (await done(db.list_tables())).tables == []
    with pytest.raises(ValueError, match="not found"):
        await done(scene.catalog.connect_database(scene.free))


async def _databases_are_listed(scene: CatalogScene) -> None:
    first = await done(scene.catalog.list_databases(limit=1))
    assert len(first.databases) == 1
    rest = await done(scene.catalog.list_databases(page_token=first.page_token))
    assert scene.existing in [*first.databases, *rest.databases]


async def _a_database_is_dropped(scene: CatalogScene) -> None:
    await done(scene.catalog.drop_database(scene.existing))
    assert scene.existing not in await scene.names()
    await done(scene.catalog.drop_database(scene.existing, ignore_missing=True))


async def _the_catalog_has_a_uri(scene: CatalogScene) -> None:
    assert (await value_of(scene.catalog, "uri")).rstrip("/") == scene.url.rstrip("/")


CATALOG: dict[str, Callable[[CatalogScene], Awaitable[None]]] = {
    "create_database": _a_database_is_created,
    "connect_database": _a_database_is_opened,
    "list_databases": _databases_are_listed,
    "drop_database": _a_database_is_dropped,
    "uri": _the_catalog_has_a_uri,
}
