"""Random catalogs: nothing beside a Lance table loses a file, is opened with it, or blocks it.

Each catalog has entries of all formats of `servers.neighbours` at, above, below and beside the
places of two Lance tables, one on local disk and one on S3, which are registered there. Some have
something that cannot be read, or a user to whom no listing shows her own namespace. Where the data
of each entry is, the test knows by itself: it compares directories, and does not ask the product.
"""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import lance
import pyarrow as pa
import pytest
from core.memory_catalog import ASKED, OWN, vendor_properties
from lance_namespace import ErrorCode
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from servers.metastores import Metastores
from servers.neighbours import FORMATS, VIEW_FIELDS, Fields, uri
from servers.unity import UnityServer

from lance_bridge import LanceBridgeNamespace
from lance_bridge.testing.calls import Calls, code_of, refused

from .glue_target import GlueOnDiskTarget
from .hive_target import hive_target
from .memory_suite import MemoryTarget
from .unity_target import UnityTarget

pytestmark = pytest.mark.spec("common.md#droptable", "common.md#rights-and-lifetime")

SHARES = {"memory": 1300, "unity": 500, "glue": 140, "hive": 60}
"""How many catalogs of each kind: 2,000 in all."""
FEW = 2
"""How many of each before each push."""

REFUSED = (ErrorCode.INVALID_TABLE_STATE, ErrorCode.PERMISSION_DENIED)
NARROW = {"drop.check-sharing": "namespace", "credentials.check-sharing": "namespace"}
NOWHERE = {"storage.aws_endpoint": "http://127.0.0.1:9", "storage.allow_http": "true"}
"""No bucket is asked for anything: what matters are the credentials for it."""
SPELLINGS: Sequence[Callable[[str], str]] = (
    str,
    lambda place: f"{place}/",
    lambda place: f"{place.rpartition('/')[0]}/./{place.rpartition('/')[2]}",
)


@dataclass(frozen=True)
class Entry:
    """An entry of another tool, and where its data is."""

    name: str
    format: str
    place: str


@dataclass
class RandomCatalog:
    """A namespace with two Lance tables, among entries of others in it and in another one."""

    seed: int
    target: Any
    root: Path
    template: Path
    """A Lance dataset to copy."""
    user: bool = False
    """Whether the client is the second user, in a namespace that only she has."""
    others: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.log = uuid.uuid4().hex
        self.roots = {"local": str(self.root), "s3": f"s3://lake/tables/{self.log}"}
        self.own = {key: self.place(root) for key, root in self.roots.items()}

    # -- places ------------------------------------------------------------------------------------

    def place(self, root: str) -> str:
        """Return one of a few directories, so that entries often meet."""
        return f"{root}/team{self.random.randrange(2)}/data{self.random.randrange(4)}"

    def place_of_other(self, root: str) -> str:
        """Return such a directory, or one above it, below it, or with a longer name."""
        place = self.place(root)
        return self.random.choice(
            [place, place, f"{place}/day=1", f"{place}-copy", place.rpartition("/")[0]]
        )

    # -- making it ---------------------------------------------------------------------------------

    @contextmanager
    def open(self) -> Iterator[Calls]:
        """Fill the catalog; yield a client, and remove all that was made."""
        with ExitStack() as undo:
            calls = self.connect()
            undo.callback(calls.close)
            name = f"random_{self.log[:12]}"
            self.id, elsewhere = [*self.target.parent, name], [*self.target.parent, f"{name}_2"]
            for each in [self.id] if self.user else [self.id, elsewhere]:
                calls.create_namespace(each)
                undo.callback(calls.drop_namespace, each)
            for key, place in self.own.items():
                if key == "local":
                    shutil.copytree(self.template, place)
                calls.register_table([*self.id, key], self.random.choice(SPELLINGS)(place))
                undo.callback(code_of, calls.deregister_table, [*self.id, key])
            for number in range(self.random.randrange(1, 9)):
                home = self.id if self.user else self.random.choice([self.id, elsewhere])
                self._add(f"other{number}", home, undo)
            yield calls

    def _add(self, name: str, home: Sequence[str], undo: ExitStack) -> None:
        format_ = self.random.choice([*FORMATS, "lance", "view"])
        root = self.random.choice(list(self.roots.values()))
        place = self.place_of_other(root)
        if format_ == "view":
            fields = VIEW_FIELDS
        elif format_ == "lance":  # whose data may be lost
            fields = Fields(uri(place), {"table_type": "lance"})
        else:
            spelling = self.random.choice(
                SPELLINGS[:2] if format_ == "delta_symlinks" else SPELLINGS
            )
            fields = FORMATS[format_](spelling(place))
        if fields.partitions and isinstance(self.target, UnityTarget):
            return
        self.target.add_entry(home, name, fields)
        undo.callback(self.target.remove_entry, home, name)
        if format_ != "view":
            self.others.append(Entry(name, format_, place))
            if format_ != "lance" and place.startswith("/"):
                Path(place).mkdir(parents=True, exist_ok=True)
                (Path(place) / f"{name}.parquet").write_text("not Lance")

    def connect(self, **properties: str) -> Calls:
        """Return a client, whose vendor notes what it is asked for."""
        found = self.target.second_user() if self.user else self.target.connect()
        if not isinstance(found, LanceBridgeNamespace):
            found = found._namespace  # the target in memory wraps it
        given = {**OWN, **NOWHERE, **vendor_properties(self.log), **properties}
        known = {**found._properties, **given}
        found.close()
        return Calls(type(found)(**known))

    def show(self, kind: type[BaseException] | None, *_: object) -> None:
        """Print what there is if the block fails."""
        if kind is not None:
            print(f"seed {self.seed}, second user: {self.user}, {self.own}", *self.others, sep="\n")

    # -- what must be ------------------------------------------------------------------------------

    def sharing(self, key: str) -> list[Entry]:
        """Return the entries with data in, above or below the place of a table."""
        own = PurePosixPath(self.own[key])
        places = [(each, PurePosixPath(each.place)) for each in self.others]
        return [e for e, place in places if own.is_relative_to(place) or place.is_relative_to(own)]

    def files(self) -> set[str]:
        """Return all files on local disk."""
        return {os.path.join(d, name) for d, _, names in os.walk(self.root) for name in names}


def try_drop(world: RandomCatalog, calls: Calls, unread: str) -> None:
    """Drop the local table: no file but its own is lost, and only what shares them is in the way.

    Args:
        unread: The name of what cannot be read in another namespace; empty if all can.
    """
    table, before = [*world.id, "local"], world.files()
    own = world.own["local"]
    mine = {f"{own}/{name}" for name in _names(world.template)}
    sharing = world.sharing("local")
    # Partitions are read only if files of others are among the table's; else none can be lost.
    certain = certain_of(sharing)
    if certain or unread:
        with refused(*REFUSED, naming="" if sharing else unread):
            calls.drop_table(table)
        assert world.files() == before
        if certain:
            calls.describe_table(table, vend_credentials=False)
            return
        with closing(world.connect(**NARROW)) as narrow:
            code = code_of(narrow.drop_table, table)
    else:
        code = code_of(calls.drop_table, table)
    assert code is None or (sharing and code == ErrorCode.INVALID_TABLE_STATE), code
    gone = before - world.files()
    assert gone == (mine if code is None else set())


def certain_of(sharing: list[Entry]) -> list[Entry]:
    """Return the entries that must be seen to share a location, whatever files lie there."""
    return [each for each in sharing if each.format != "partitioned"]


def _names(directory: Path) -> list[str]:
    return [str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file()]


def try_vend(world: RandomCatalog, calls: Calls, unread: str) -> None:
    """Have credentials for the table on S3: for its own place, and only if nobody shares it."""
    table = [*world.id, "s3"]
    ASKED.pop(world.log, None)  # the registration may have asked, before the others came
    sharing = world.sharing("s3")
    certain = certain_of(sharing)
    if certain or unread:
        with refused(*REFUSED, naming="" if sharing else unread):
            calls.describe_table(table, vend_credentials=True)
        assert ASKED[world.log] == []
        if certain:
            return
        with closing(world.connect(**NARROW)) as narrow:
            code = code_of(lambda: narrow.describe_table(table, vend_credentials=True))
    else:
        code = code_of(lambda: calls.describe_table(table, vend_credentials=True))
    if code is not None:
        assert sharing, "nothing shares the location"
        assert (code, ASKED[world.log]) == (ErrorCode.INVALID_TABLE_STATE, [])
        return
    own = world.own["s3"].removeprefix("s3://lake/")
    assert {(each.bucket, each.prefix) for each in ASKED.pop(world.log)} == {("lake", own)}


def try_others(world: RandomCatalog, calls: Calls) -> None:
    """Use tables that share nothing: they are made, listed, read and deregistered."""
    place = world.root / "apart.lance"
    shutil.copytree(world.template, place)
    calls.register_table([*world.id, "apart"], str(place))
    assert {"apart", "local", "s3"} <= {*calls.all_tables(world.id)}
    assert calls.count([*world.id, "apart"]) == 1
    calls.deregister_table([*world.id, "apart"])


def check(target: Any, seeds: Sequence[int], directory: Path) -> None:
    """Check the random catalogs of these seeds on a server."""
    template = directory / "template"
    lance.write_dataset(pa.table({"id": [1]}), template)
    for seed in seeds:
        chance = random.Random(seed)
        has_users = not target.lacks("second_user") and chance.random() < 0.3
        unread_types = [] if has_users else [""] * 3 + list(target.unreadable_types)
        unreadable = chance.choice(unread_types) if unread_types else ""
        root = directory / f"lake{seed}"
        with ExitStack() as stack:
            unread = stack.enter_context(target.unreadable(unreadable))[-1] if unreadable else ""
            world = RandomCatalog(seed, target, root, template, has_users)
            stack.push(world.show)
            calls = stack.enter_context(world.open())
            try_others(world, calls)
            # Others' entries are read once a minute: an earlier client may not know them all.
            fresh = stack.enter_context(closing(world.connect()))
            try_vend(world, fresh, unread)
            try_drop(world, calls, unread)
        shutil.rmtree(root, ignore_errors=True)


class Servers:
    """Targets of each kind, made when first asked for."""

    def __init__(self, directory: Path, metastores: Callable[[], Metastores]) -> None:
        self._directory = directory
        self._metastores = metastores

    @contextmanager
    def open(self, kind: str) -> Iterator[Any]:
        """Yield a target with a server of its own, or with the metastore that tests share."""
        data = self._directory / kind
        data.mkdir(exist_ok=True)
        if kind == "memory":
            target = MemoryTarget(data)
            target.unreadable_types = ("entry", "namespace")
            yield target
        elif kind == "hive":
            yield hive_target("2.3", self._metastores(), data)
        elif kind == "unity":
            with UnityServer() as unity:
                yield UnityTarget(unity, str(data))
        else:
            with GlueServer() as glue, HttpProxy(glue.endpoint) as proxy:
                yield GlueOnDiskTarget(glue, proxy, data)


@pytest.fixture
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Servers:
    return Servers(tmp_path, lambda: request.getfixturevalue("metastores"))


@pytest.mark.servers
@pytest.mark.parametrize("kind", SHARES)
def test_a_few_random_catalogs(servers: Servers, tmp_path: Path, kind: str) -> None:
    with servers.open(kind) as target:
        check(target, range(FEW), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SHARES)
def test_two_thousand_random_catalogs(servers: Servers, tmp_path: Path, kind: str) -> None:
    with servers.open(kind) as target:
        check(target, range(FEW, FEW + SHARES[kind]), tmp_path)
