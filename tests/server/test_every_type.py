"""Values of every Arrow type are the same wherever a table is read, or a column is named."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from arrow_types import BLOBS, SAMPLE_SHAPES, SAMPLES, STORED, Sample, undecided_samples
from cli.program import run
from pyarrow import parquet
from server.gateways import clients, memory_namespace, serve_namespace
from server.ui.browsers import HtmlPage

from lance_bridge.arrow_values import to_values
from lance_bridge.testing.calls import ipc
from lance_bridge.values import to_json_value
from lance_bridge_cli import rows
from lance_bridge_server.access.authorizer import AllowAll

pytestmark = [
    pytest.mark.servers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.spec("cli.md#output", "server.md#rows-on-a-page", "server.md#schemas"),
]

_WIDTH = 25
_SHOWN = 20
"""Characters of a value to look for on a page, which cuts long values."""
_ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


@dataclass(frozen=True)
class Wide:
    """A table of several samples in one shape: a column each, named by its number."""

    shape: str
    samples: dict[str, Sample]
    """Those of each column, in that shape and of one length."""

    @property
    def table(self) -> pa.Table:
        """The table, with row numbers as ``id``."""
        fields = [each.field.with_name(name) for name, each in self.samples.items()]
        arrays = [each.array for each in self.samples.values()]
        ids = pa.array(range(len(arrays[0])), pa.int64())
        schema = pa.schema([pa.field("id", pa.int64()), *fields])
        return pa.Table.from_arrays([ids, *arrays], schema=schema)

    def without(self, word: str) -> Wide:
        """Return the table without the samples whose name has a word."""
        kept = {name: each for name, each in self.samples.items() if word not in each.name}
        return replace(self, samples=kept)

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The values of each column as JSON has them."""
        return {name: each.values for name, each in self.samples.items()}


def _padded(sample: Sample, length: int) -> Sample:
    """Return a sample with its last value repeated."""
    missing = length - len(sample.array)
    array = pa.concat_arrays([sample.array, *[sample.array[-1:]] * missing])
    values = [*sample.values, *sample.values[-1:] * missing]
    return replace(sample, array=array, values=values)


def _wide_tables() -> Iterator[Any]:
    of_parquet = [each for each in STORED if not each.no_parquet]
    for shape, place in SAMPLE_SHAPES.items():
        for start in range(0, len(of_parquet), _WIDTH):
            samples = [place(each) for each in of_parquet[start : start + _WIDTH]]
            length = max(len(each.array) for each in samples)
            numbered = enumerate(_padded(each, length) for each in samples)
            wide = Wide(shape, {f"c{number}": each for number, each in numbered})
            marks = [pytest.mark.quick] if shape == "plain" else []
            yield pytest.param(wide, id=f"{shape}-{start}", marks=marks)


NO_PARQUET = [each for each in STORED if each.no_parquet]
REFUSED = [each for each in SAMPLES if each.refused]
WIDE = list(_wide_tables())
every_table = pytest.mark.parametrize("wide", WIDE)


@dataclass(frozen=True)
class Place:
    """A catalog, and a gateway of it."""

    namespace: Any
    url: str
    http: Any
    """Sends a request to the gateway."""

    @property
    def remote(self) -> Any:
        return lancedb.connect("db://db", api_key="k", host_override=self.url)

    def write(self, name: str, table: pa.Table) -> pa.Table:
        """Write a table by pylance, and return what it reads."""
        target = {"namespace_client": self.namespace, "table_id": ["db", name]}
        request = api.DropTableRequest(id=["db", name])
        if name in self.namespace.list_tables(api.ListTablesRequest(id=["db"])).tables:
            self.namespace.drop_table(request)
        lance.write_dataset(table, **target, data_storage_version="2.2")
        return self.read(name)

    def read(self, name: str) -> pa.Table:
        dataset = lance.dataset(namespace_client=self.namespace, table_id=["db", name])
        return dataset.to_table()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    namespace = memory_namespace(tmp_path_factory.mktemp("types"))
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    with clients(namespace, AllowAll()) as client_of, serve_namespace(namespace) as url:
        yield Place(namespace, url, client_of("ann"))


@pytest.fixture
def _command_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the command line read the catalog."""

    @contextmanager
    def connected(*_: Any) -> Iterator[Any]:
        yield place.namespace

    monkeypatch.setattr(rows, "connected_or_federated", connected)


def content(table: pa.Table) -> str:
    """Return the values of a table as text: NaN is equal to itself, and -0.0 is not 0.0."""
    return repr([to_json_value(to_values(table[field.name], field)) for field in table.schema])


@pytest.mark.quick
def test_every_type_has_a_sample() -> None:
    assert undecided_samples() == []


# -- written and read ------------------------------------------------------------------------------


@every_table
def test_pylance_has_the_values(place: Place, wide: Wide) -> None:
    read = place.write("t", wide.table)
    for name, values in wide.columns.items():
        found = to_json_value(to_values(read[name], read.schema.field(name)))
        assert repr(found) == repr(values), wide.samples[name].name


@every_table
def test_a_client_of_the_specification_writes_and_reads_them(place: Place, wide: Wide) -> None:
    query = {"k": 100, "vector": {}}
    path = "/v1/table/db$rest"
    created = place.http(
        "POST", f"{path}/create?mode=overwrite", content=ipc(wide.table), headers=_ARROW
    )
    assert created.status_code == 200, created.text
    answer = place.http("POST", f"{path}/query", json=query)
    found = pa.ipc.open_file(answer.content).read_all()
    assert found.schema == place.read("rest").schema
    assert content(found) == content(place.write("t", wide.table))


@every_table
def test_lancedb_writes_and_reads_them(place: Place, wide: Wide, tmp_path: Path) -> None:
    # Maps are below, and LanceDB's own writer cannot store nulls in structs.
    of_remote = wide.without("map")
    of_both = of_remote.without("null")
    options = {"mode": "overwrite", "on_bad_vectors": "null"}
    plain = lancedb.connect(tmp_path).create_table("lancedb", of_both.table, **options)
    remote = place.remote.create_table("lancedb", of_remote.table, **options)
    wanted = place.write("t", of_remote.table)
    for table in (plain, remote):
        found = table.search().limit(100).to_arrow()
        assert content(found) == content(wanted.select(found.schema.names))
        assert found.schema.types == [wanted.schema.field(each).type for each in found.schema.names]


@every_table
def test_the_schema_is_described(place: Place, wide: Wide) -> None:
    wanted = place.write("t", wide.without("map").table).schema
    assert place.remote.open_table("t").schema.types == wanted.types


@pytest.mark.parametrize("shape", SAMPLE_SHAPES)
def test_a_map_is_read_by_lancedb_although_its_schema_has_none(place: Place, shape: str) -> None:
    [sample] = [SAMPLE_SHAPES[shape](each) for each in STORED if "map" in each.name]
    wanted = place.write("t", sample.table)
    remote = place.remote.open_table("t")
    assert "list<entries: struct<key: string not null" in str(remote.schema.field("c").type)
    found = remote.search().limit(100).to_arrow()
    assert found.schema == wanted.schema
    assert content(found) == content(wanted)


@pytest.mark.parametrize("sample", NO_PARQUET, ids=lambda sample: sample.name)
@pytest.mark.parametrize("shape", SAMPLE_SHAPES)
def test_a_value_that_parquet_lacks_is_written_or_names_its_column(
    place: Place, sample: Sample, shape: str
) -> None:
    table = SAMPLE_SHAPES[shape](sample).table
    wanted = place.write("t", table)
    path = "/v1/table/db$rest"
    created = place.http(
        "POST", f"{path}/create?mode=overwrite", content=ipc(table), headers=_ARROW
    )
    if sample.array.type == pa.date64():  # Arrow's own rule
        assert created.status_code == 400
        assert "not valid Arrow data: In column 'c'" in created.json()["error"]
    else:
        assert created.status_code == 200, created.text
        assert content(place.read("rest")) == content(wanted)


@pytest.mark.parametrize("sample", REFUSED, ids=lambda sample: sample.name)
@pytest.mark.parametrize("shape", SAMPLE_SHAPES)
def test_a_type_that_lance_lacks_is_refused_by_name(
    place: Place, sample: Sample, shape: str
) -> None:
    table = SAMPLE_SHAPES[shape](sample).table
    with pytest.raises(OSError, match=sample.refused):
        lance.write_dataset(table, "memory://")
    refused = place.http("POST", "/v1/table/db$refused/create", content=ipc(table), headers=_ARROW)
    assert (refused.status_code, refused.json()["code"]) == (400, 13)
    assert "column 'c' of type" in refused.json()["error"]


# -- the command line ------------------------------------------------------------------------------


def _check_texts(wide: Wide, rows: list[dict[str, str]]) -> None:
    """Check the rows of a CSV file: text as it is, other values as JSON, and nothing for null."""
    for name, values in wide.columns.items():
        cells = [row[name] for row in rows]
        sample = wide.samples[name]
        for cell, value in zip(cells, values, strict=True):
            if value is None:
                assert cell == "", name
            elif isinstance(value, str) and "json" not in sample.name:
                assert cell == value, sample.name
            else:
                assert repr(json.loads(cell)) == repr(value), sample.name


@pytest.mark.usefixtures("_command_line")
@every_table
def test_the_command_line_prints_them(place: Place, wide: Wide) -> None:
    place.write("t", wide.table)
    for command in ("head", "query"):
        shown = json.loads(run("table", command, "any", "db.t", "-n", "100", "-o", "json").stdout)
        found = {name: [row[name] for row in shown] for name in wide.columns}
        assert repr(found) == repr(wide.columns)
        text = run("table", command, "any", "db.t", "-n", "100", "-o", "csv").stdout
        _check_texts(wide, list(csv.DictReader(io.StringIO(text, newline=""))))
        text = run("table", command, "any", "db.t", "-n", "100").stdout
        assert {line.count("\t") for line in text.splitlines()} == {len(wide.columns)}


# -- the page --------------------------------------------------------------------------------------


@every_table
def test_the_page_shows_them(place: Place, wide: Wide) -> None:
    place.write("t", wide.table)
    page = place.http("GET", "/ui/rows/db/t")
    assert page.status_code == 200
    shown = HtmlPage.of(page.text)
    assert "cannot be shown" not in shown.text
    for sample in wide.samples.values() if wide.shape == "plain" else ():
        is_text = sample.name.startswith(("time", "date", "decimal", "extension<arrow.uuid"))
        for value in sample.values if is_text else []:
            assert ("null" if value is None else value[:_SHOWN]) in shown.text, sample.name


@every_table
def test_the_page_downloads_them(place: Place, wide: Wide) -> None:
    wanted = place.write("t", wide.table)
    files = {each: _download(place, each) for each in ("arrow", "parquet", "csv")}
    found = pa.ipc.open_file(files["arrow"].content).read_all()
    assert found.schema.types == wanted.schema.types
    assert content(found) == content(wanted)
    found = parquet.read_table(io.BytesIO(files["parquet"].content))
    assert content(found) == content(wanted)
    text = io.StringIO(files["csv"].content.decode(), newline="")
    _check_texts(wide, list(csv.DictReader(text)))


def _download(place: Place, form: str, status: int = 200) -> Any:
    response = place.http("GET", f"/ui/download/db/t?format={form}")
    assert response.status_code == status, response.text
    return response


@pytest.mark.parametrize(
    "sample", [each for each in STORED if each.no_parquet], ids=lambda s: s.name
)
@pytest.mark.parametrize("shape", SAMPLE_SHAPES)
def test_a_download_that_cannot_have_a_value_names_the_column(
    place: Place, sample: Sample, shape: str
) -> None:
    wanted = place.write("t", SAMPLE_SHAPES[shape](sample).table)
    assert "Column &#39;c&#39; of type" in _download(place, "parquet", 400).text
    found = pa.ipc.open_file(_download(place, "arrow").content).read_all()
    assert content(found) == content(wanted)
    _download(place, "csv")


# -- blobs -----------------------------------------------------------------------------------------


@pytest.mark.spec("server.md#lancedb")
@pytest.mark.usefixtures("_command_line")
@pytest.mark.parametrize("shape", ["plain", "struct"])
@pytest.mark.parametrize("sample", BLOBS, ids=lambda sample: sample.name)
def test_of_a_blob_its_size_is_shown(place: Place, sample: Sample, shape: str) -> None:
    def sizes(values: list[Any]) -> list[Any]:
        inner = [each if shape == "plain" or each is None else each["v"] for each in values]
        return [None if each is None else each["size"] for each in inner][:3]

    place.write("t", SAMPLE_SHAPES[shape](sample).table)
    remote = place.remote.open_table("t")
    assert sizes(remote.search().limit(9).to_arrow()["c"].to_pylist()) == sample.values
    with pytest.raises(NotImplementedError, match="fetch_blobs is not supported"):
        remote.fetch_blobs("c", [0])
    shown = json.loads(run("table", "head", "any", "db.t", "-o", "json").stdout)
    assert sizes([row["c"] for row in shown]) == sample.values
    cells = HtmlPage.of(place.http("GET", "/ui/rows/db/t").text).cells
    assert ("blob, 3 B: 61 62 63" in cells) == (shape == "plain")
    assert any('"size": 3' in each for each in cells) == (shape == "struct")
    for form in ("arrow", "parquet", "csv"):
        assert _download(place, form).content
    image = place.http("GET", "/ui/image/db/t?column=c&row=0")
    assert image.status_code == 400
    assert "has no image" in image.text
