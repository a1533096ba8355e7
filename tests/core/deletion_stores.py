"""Where generated tables lie, on local files and on S3, and how others spell these locations.

Written without the product's rules on locations, which it is to check.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree
from urllib.parse import quote

import obstore
from obstore.store import S3Store
from servers.objectstore import MotoServer

from .building import BUCKET

Files = dict[str, bytes]
Names = tuple[str, ...]
"""The names of directories below the root of a store."""


NAMES = ("t.lance", "a b.lance", "é+.lance", "T")
"""For a table's directory."""


class LocalStore:
    """A directory of local files. ``outside``, beside it, is where links lead."""

    with_links = True
    options: Mapping[str, str] = {}
    """For Lance."""
    names = (*NAMES, "100%.lance", "a%20b.lance")

    def __init__(self, directory: Path) -> None:
        self._root = directory / "lake"
        self._outside = directory / "outside"
        self._alias = directory / "alias"
        for each in (self._root, self._outside):
            each.mkdir()
        (self._outside / "kept").write_text("kept")
        self._alias.symlink_to(self._root)

    def put(self, place: Names, files: Files) -> None:
        for name, data in files.items():
            path = self._root.joinpath(*place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def link(self, place: Names, name: str) -> None:
        """Add a link that leads out of the store."""
        path = self._root.joinpath(*place, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self._outside)

    def read(self, place: Names) -> dict[str, object]:
        """Return all files and links below a place, with what differs where one has changed."""
        assert (self._outside / "kept").exists()
        start = self._root.joinpath(*place)
        found: dict[str, object] = {}
        for parent, directories, files in os.walk(start):
            for path in (Path(parent, name) for name in (*directories, *files)):
                if path.is_symlink():
                    found[str(path.relative_to(start))] = os.readlink(path)
                elif path.is_file():
                    found[str(path.relative_to(start))] = path.read_bytes()
        return found

    def remove(self, place: Names) -> None:
        rmtree(self._root.joinpath(*place))

    def uris(self, place: Names) -> list[str]:
        """Return spellings that Lance opens."""
        path = str(self._root.joinpath(*place))
        way_out = f"{self._root}/{'/'.join(('x', '..', *place))}"
        encoded = f"file://{quote(path)}"
        return [path, f"{path}/", way_out, encoded, encoded.replace("lance", "%6Cance")]

    def locations(self, place: Names) -> list[str]:
        """Return spellings that a table's entry may have, to be read and dropped."""
        path = str(self._root.joinpath(*place))
        return [path, f"{path}/", f"file:{path}", f"file://{path}", f"file://localhost{path}/"]

    def odd_locations(self, place: Names) -> list[str]:
        """Return further spellings that other clients may have written."""
        path = str(self._root.joinpath(*place))
        inside = "/".join(place)
        return [
            *self.locations(place),
            f"file:{quote(path)}/",
            f"FILE:{path}",
            f"file:///{path}",
            f"{self._alias}/{inside}",
            f"file:{self._alias}//{inside}/",
            f"{self._root}/./x/../{inside}",
        ]


class S3:
    """The same for a prefix of a bucket."""

    with_links = False
    names = NAMES

    def __init__(self, moto: MotoServer) -> None:
        self.options = moto.storage_options
        self._prefix = uuid.uuid4().hex
        self._store = S3Store(
            BUCKET,
            endpoint=moto.endpoint,
            region=self.options["aws_region"],
            access_key_id=self.options["aws_access_key_id"],
            secret_access_key=self.options["aws_secret_access_key"],
            client_options={"allow_http": True},
        )

    def _key(self, place: Names) -> str:
        return "/".join((self._prefix, *place))

    def put(self, place: Names, files: Files) -> None:
        def put_one(name: str) -> None:
            obstore.put(self._store, f"{self._key(place)}/{name}", files[name])

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(put_one, files))

    def link(self, place: Names, name: str) -> None:
        raise NotImplementedError

    def read(self, place: Names) -> dict[str, object]:
        start = f"{self._key(place)}/"
        return {
            meta["path"].removeprefix(start): (meta["e_tag"], meta["last_modified"])
            for batch in obstore.list(self._store, prefix=start)
            for meta in batch
        }

    def remove(self, place: Names) -> None:
        """Remove all files below a place: listings of moto take longer the more there are."""
        obstore.delete(self._store, [f"{self._key(place)}/{name}" for name in self.read(place)])

    def uris(self, place: Names) -> list[str]:
        start, key = f"s3://{BUCKET}", quote(self._key(place))
        return [
            f"{start}/{key}",
            f"{start}/{key}/",
            f"{start}/x/../{key}",
            f"{start}/%{ord(key[0]):02x}{key[1:]}",
            f"{start}/x/%2E%2e/{key}",
        ]

    def locations(self, place: Names) -> list[str]:
        key = self._key(place)
        schemes = [f"{scheme}://{BUCKET}" for scheme in ("s3", "s3a", "s3n")]
        return [
            spelled
            for start in schemes
            for spelled in (f"{start}/{key}", f"{start}/{quote(key)}/", f"{start}/{key}/")
        ]

    def odd_locations(self, place: Names) -> list[str]:
        key = quote(self._key(place))
        amazon = "amazonaws.com"
        return [
            *self.locations(place),
            *self.uris(place),
            f"S3://{BUCKET}/{key}",
            f"s3+ddb://{BUCKET}/{key}?ddbTableName=commits",
            f"https://{BUCKET}.s3.{amazon}/{key}",
            f"https://{BUCKET}.s3.eu-west-1.{amazon}/{key}/",
            f"https://s3.eu-west-1.{amazon}/{BUCKET}/{key}",
            f"s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/mine/{key}",
            f"s3a://mine-0123456789abcdef-s3alias/{key}",
        ]


Store = LocalStore | S3


def is_readable(location: str) -> bool:
    """Return False for spellings that lead to a server on the internet."""
    return not any(each in location for each in ("amazonaws", "arn:", "s3alias"))
