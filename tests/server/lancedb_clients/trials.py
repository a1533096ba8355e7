"""What is tried of every public method of LanceDB's connections.

A trial is written once for the clients with and without ``async``.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import lance_namespace as api
import pyarrow as pa
from lancedb.functions import udf

COUNT = 20


def rows(count: int, first: int = 0) -> pa.Table:
    """Rows with the ids from ``first``."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "title": [f"film number{i}" for i in ids],
            "vector": pa.array([[float(i), 0.0] for i in ids], pa.list_(pa.float32(), 2)),
        }
    )


async def done(value: Any) -> Any:
    """Return a value, or what an awaitable gives."""
    return await value if inspect.isawaitable(value) else value


async def value_of(owner: Any, name: str) -> Any:
    """Return a property, or the result of a method without arguments."""
    found = getattr(owner, name)
    return await done(found() if callable(found) else found)


@dataclass(frozen=True)
class Scene:
    """A connection, with a table ``t`` of 20 rows in a database of its own."""

    db: Any
    table: Any
    at: dict[str, Any]
    """Where the table is: arguments for the methods of the connection."""

    async def open(self, name: str) -> Any:
        return await done(self.db.open_table(name, **self.at))

    async def names(self) -> list[str]:
        return sorted(await done(self.db.table_names(**self.at)))

    async def ids(self, query: Any) -> list[int]:
        found = await done((await done(query)).to_list())
        return [row["id"] for row in found]

    async def count(self) -> int:
        return int(await done(self.table.count_rows()))


Trial = Callable[[Scene], Awaitable[None]]
CONNECTION: dict[str, Trial] = {}


def of(trials: dict[str, Trial], *names: str) -> Callable[[Trial], Trial]:
    def register(trial: Trial) -> Trial:
        trials.update(dict.fromkeys(names, trial))
        return trial

    return register


def calls(name: str, *args: Any, **options: Any) -> Trial:
    """Return a trial of a method that is refused, so that nothing is to be checked."""

    async def call(owner: Any) -> None:
        found = getattr(owner, name)
        await done(found(*args, **options) if callable(found) else found)

    return call


# -- connections -----------------------------------------------------------------------------------


@of(CONNECTION, "create_table", "open_table", "table_names")
async def _tables_are_created(scene: Scene) -> None:
    await done(scene.db.create_table("n", rows(2), **scene.at))
    assert await done((await scene.open("n")).count_rows()) == 2
    assert await scene.names() == ["n", "t"]


@of(CONNECTION, "list_tables")
async def _tables_are_listed(scene: Scene) -> None:
    assert (await done(scene.db.list_tables(**scene.at))).tables == ["t"]


@of(CONNECTION, "table_exists")
async def _tables_exist(scene: Scene) -> None:
    path = scene.at.get("namespace_path", [])
    await done(scene.db.table_exists([*path, "t"]))


@of(CONNECTION, "namespace_exists")
async def _namespaces_exist(scene: Scene) -> None:
    await done(scene.db.namespace_exists(scene.at.get("namespace_path", [])))


@of(CONNECTION, "drop_table")
async def _a_table_is_dropped(scene: Scene) -> None:
    await done(scene.db.drop_table("t", **scene.at))
    assert await scene.names() == []


@of(CONNECTION, "drop_table_async")
async def _a_table_is_dropped_by_a_job(scene: Scene) -> None:
    job = await done(scene.db.drop_table_async("t", **scene.at))
    await done(job.wait())
    assert await scene.names() == []


@of(CONNECTION, "drop_all_tables")
async def _all_tables_are_dropped(scene: Scene) -> None:
    await done(scene.db.drop_all_tables(**scene.at))
    assert await scene.names() == []


@of(CONNECTION, "drop_database")
async def _the_database_is_dropped(scene: Scene) -> None:
    await done(scene.db.drop_database())
    assert await scene.names() == []


def _source(scene: Scene) -> str:
    """Return what a view is made of: a table, or a query where the server runs SQL."""
    return "t" if scene.at else "SELECT * FROM t"


@of(CONNECTION, "create_materialized_view")
async def _a_view_is_created(scene: Scene) -> None:
    await done(scene.db.create_materialized_view("v", _source(scene)))


@of(CONNECTION, "create_materialized_view_async")
async def _a_view_is_created_by_a_job(scene: Scene) -> None:
    job = await done(scene.db.create_materialized_view_async("v", _source(scene)))
    await done(job.wait())


@of(CONNECTION, "drop_materialized_view_async")
async def _a_view_is_dropped_by_a_job(scene: Scene) -> None:
    await done((await done(scene.db.drop_materialized_view_async("v"))).wait())


@of(CONNECTION, "rename_table")
async def _a_table_is_renamed(scene: Scene) -> None:
    at = scene.at.get("namespace_path")
    paths = {"cur_namespace_path": at, "new_namespace_path": at} if at else {}
    await done(scene.db.rename_table("t", "u", **paths))
    assert await scene.names() == ["u"]


@of(CONNECTION, "create_namespace", "drop_namespace")
async def _namespaces_are_created(scene: Scene) -> None:
    path = ["made_" + scene.at["namespace_path"][0]] if scene.at else ["made"]
    await done(scene.db.create_namespace(path))
    await done(scene.db.drop_namespace(path))


@of(CONNECTION, "describe_namespace")
async def _the_namespace_is_described(scene: Scene) -> None:
    await done(scene.db.describe_namespace(scene.at.get("namespace_path", [])))


@of(CONNECTION, "list_namespaces")
async def _namespaces_are_listed(scene: Scene) -> None:
    found = (await done(scene.db.list_namespaces())).namespaces
    assert set(scene.at.get("namespace_path", [])) <= set(found)


@of(CONNECTION, "namespace_client")
async def _the_namespace_client_lists_the_tables(scene: Scene) -> None:
    client = await done(scene.db.namespace_client())
    request = api.ListTablesRequest(id=scene.at.get("namespace_path", []))
    assert client.list_tables(request).tables == ["t"]


@of(CONNECTION, "uri")
async def _the_connection_has_a_uri(scene: Scene) -> None:
    assert isinstance(await value_of(scene.db, "uri"), str)


@of(CONNECTION, "is_open")
async def _the_connection_is_open(scene: Scene) -> None:
    assert await value_of(scene.db, "is_open")


@udf  # type: ignore[untyped-decorator]  # LanceDB's own has no types
def _double(x: int) -> int:
    return 2 * x


_VIEW = ("v", "SELECT * FROM t")
_CLONE = ("copy", "/nonexistent")
CONNECTION["clone_table"] = lambda scene: calls("clone_table", *_CLONE)(scene.db)
_OTHER_METHODS: dict[str, tuple[Any, ...]] = {
    "alter_secret": ("s", "x"),
    "cancel_job": ("j",),
    "create_function": (_double,),
    "create_function_async": (_double,),
    "create_secret": ("s", "x"),
    "create_view": _VIEW,
    "describe_query": (UUID(int=1),),
    "describe_secret": ("s",),
    "describe_view": ("v",),
    "drop_materialized_view": ("v",),
    "drop_secret": ("s",),
    "drop_view": ("v",),
    "drop_view_async": ("v",),
    "get_read_consistency_interval": (),
    "serialize": (),
    "execute_query": ("SELECT 1",),
    "execute_query_async": ("SELECT 1",),
    "list_functions": (),
    "list_jobs": (),
    "list_materialized_views": (),
    "list_secrets": (),
    "list_views": (),
    "open_job": ("j",),
    "open_materialized_view": ("v",),
    "pause_job": ("j",),
    "resume_job": ("j",),
}


def _on_connection(name: str, args: tuple[Any, ...]) -> Trial:
    return lambda scene: calls(name, *args)(scene.db)


CONNECTION.update({name: _on_connection(name, args) for name, args in _OTHER_METHODS.items()})
CONNECTION["close"] = _on_connection("close", ())
for _name in ("drop_function", "drop_function_async", "get_function"):
    CONNECTION[_name] = lambda scene, name=_name: calls(name, "f", version="1")(scene.db)  # type: ignore[misc]
