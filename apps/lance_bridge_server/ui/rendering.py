"""What pages are written with: addresses, templates, plots, cells of values, lines of a schema."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined
from lance_namespace_urllib3_client.models import JsonArrowDataType, JsonArrowField, JsonArrowSchema
from markupsafe import escape
from starlette.responses import HTMLResponse, Response

from lance_bridge.arrow_values import to_values
from lance_bridge.errors import invalid
from lance_bridge.redaction import is_secret, redact
from lance_bridge.values import to_text

# -- addresses -------------------------------------------------------------------------------------


ROOT = "/ui"


def address(page: str, names: Sequence[str] = (), /, **query: object) -> str:
    """Return the address of a page.

    Args:
        page: Such as ``table``; empty for the first page.
        names: The names of the namespace or table that it shows.
        query: Parameters; empty strings, False and None are left out.
    """
    parts = [ROOT, *([page] if page else []), *(quote(each, safe="") for each in names)]
    given = {key: value for key, value in query.items() if value not in (None, "", False)}
    return "/".join(parts) + (f"?{urlencode(given, doseq=True)}" if given else "")


def names_in(path: str) -> list[str]:
    """Return the names in the undecoded path of a request.

    Raises:
        InvalidInputError: (13) it is not UTF-8.
    """
    try:
        return [unquote(each, errors="strict") for each in path.split("/")] if path else []
    except UnicodeDecodeError:
        raise invalid("The names in the path are not UTF-8") from None


# -- templates -------------------------------------------------------------------------------------


SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "media-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer", browsers would send forms with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_DASH = "\N{EN DASH}"
PRIVATE_HEADERS: Final[Mapping[str, str]] = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
"""The headers of responses for one principal."""
_POLICY = "Content-Security-Policy"
_FIGURE_HEADERS = {**PRIVATE_HEADERS, _POLICY: f"{SECURITY_HEADERS[_POLICY]}; connect-src 'self'"}
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}

_MEDIA_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


NAVIGATION = {"Catalogs": "", "Search": "search", "Health": "health"}
"""The links at the top of each page: label to page."""


def html_page(
    template: str,
    *,
    status: int = 200,
    section: str = "Catalogs",
    loads_figures: bool = False,
    **context: Any,
) -> Response:
    """Render a page. All values of the context are escaped.

    Args:
        section: The entry of `NAVIGATION` that it belongs to.
        loads_figures: Whether its script may make requests of this server.
    """
    text = _TEMPLATES.get_template(template).render(context, section=section)
    return HTMLResponse(text, status, _FIGURE_HEADERS if loads_figures else PRIVATE_HEADERS)


def static_file(name: str) -> Response | None:
    """Return one of the files that pages load, or None if there is no such file."""
    if name not in _FILES:
        return None
    headers = {**SECURITY_HEADERS, **_KEPT}
    return Response(_FILES[name], headers=headers, media_type=_MEDIA_TYPES[name])


def format_bytes(count: float) -> str:
    """Return a size in decimal units: ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:,.0f} PB"


def format_seconds(seconds: float | None) -> str:
    """Return a time in milliseconds or seconds; a dash for None."""
    if seconds is None:
        return _DASH
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def format_count(count: int | None) -> str:
    """Return a number with thousands separators; a dash for None."""
    return _DASH if count is None else f"{count:,}"


def format_time(millis: int | None) -> str:
    """Return a time in UTC; a dash for None."""
    if millis is None:
        return _DASH
    try:
        moment = datetime.fromtimestamp(millis / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return _DASH
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def format_iso_time(text: str) -> str:
    """Return a time in ISO 8601 as `format_time` does; other texts unchanged."""
    try:
        return format_time(round(datetime.fromisoformat(text).timestamp() * 1000))
    except ValueError:
        return text


def _read_files() -> dict[str, bytes]:
    folder = files(__package__) / "static"
    return {name: (folder / name).read_bytes() for name in _MEDIA_TYPES}


def _static_address(name: str) -> str:
    digest = hashlib.sha256(_FILES[name]).hexdigest()[:12]
    return address("static", [name], v=digest)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(address=address, static=_static_address, navigation=NAVIGATION)
    made.filters.update(
        bytes=format_bytes,
        count=format_count,
        iso_time=format_iso_time,
        seconds=format_seconds,
        time=format_time,
    )
    return made


_FILES = _read_files()
_TEMPLATES = _environment()


# -- plots -----------------------------------------------------------------------------------------


_QUANTILES = (("min", "min"), ("p25", "25 %"), ("p50", "50 %"), ("p75", "75 %"), ("max", "max"))
BAR_HEIGHT = 40


@dataclass(frozen=True)
class Bar:
    """A bar of a plot that is `BAR_HEIGHT` high."""

    label: str
    value: int
    height: float


def fragment_bars(stats: Any) -> list[Bar]:
    """Return the distribution of rows over fragments; empty without fragments."""
    if not stats.num_fragments:
        return []
    largest = max(stats.lengths.max, 1)
    values = [(label, int(getattr(stats.lengths, name))) for name, label in _QUANTILES]
    return [Bar(label, n, max(1.0, n / largest * BAR_HEIGHT)) for label, n in values]


def share_percent(part: int | None, rest: int | None) -> float:
    """Return the percentage of a part in its sum with the rest."""
    whole = (part or 0) + (rest or 0)
    return round(100 * (part or 0) / whole, 1) if whole else 0.0


def line_points(values: Sequence[float], width: float, height: float) -> str:
    """Return numbers as points of an SVG polyline, from left to right, lowest at the bottom.

    Numbers that are not finite are left out.
    """
    finite = [each for each in values if abs(each) < float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    step = width / max(len(values) - 1, 1)
    return " ".join(
        f"{i * step:.1f},{height - (each - low) / span * height:.1f}"
        for i, each in enumerate(values)
        if abs(each) < float("inf")
    )


# -- cells -----------------------------------------------------------------------------------------


SPARK_WIDTH, SPARK_HEIGHT = 96, 20
_LONGEST = 140
"""Characters of a text that are shown."""
_WIDE = 40
"""The length of text that needs a wide column."""
_TAGS = 60
"""The approximate bytes of the tags around a value."""
_MOST_POINTS = 32
"""The largest number of points in a vector's line."""
_MEDIA = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_MP4 = {
    b"M4A ": "audio/mp4",
    **dict.fromkeys((b"avc1", b"isom", b"iso2", b"iso5", b"iso6", b"mp41", b"mp42"), "video/mp4"),
}
"""The media types of MP4 by its brand; images have others."""
LARGEST_MEDIA = 4 << 20
"""The largest image, audio or video that is shown, in bytes."""
HEAD_BYTES = 13
"""How many bytes of a blob its cell needs: 12 are shown or recognised, and one more is left out."""


@dataclass(frozen=True)
class Blob:
    """A blob of a row."""

    size: int
    head: bytes | None = None
    """Its first bytes, or None if they are unknown."""


@dataclass(frozen=True)
class Cell:
    """The display of a value on a page."""

    kind: str
    """``null``, ``text``, ``number``, ``vector``, ``image``, ``audio``, ``video`` or ``binary``."""
    text: str
    rest: int = 0
    """Characters of the text that are left out."""
    points: str = ""
    """The points of a vector's polyline."""
    is_long: bool = False
    """Whether a text needs a wide column."""
    source: str = ""
    """The address of an image, audio or video."""
    similar: str = ""
    """The address of the rows nearest to this vector."""
    link: str = ""
    """The address of the page with the whole value."""

    @property
    def weight(self) -> int:
        """The approximate number of bytes that it adds to a page."""
        texts = (self.text, self.points, self.source, self.similar, self.link)
        return _TAGS + sum(len(str(escape(each)).encode()) for each in texts)


def make_cell(value: Any, kind: str, similar: str = "", source: str = "") -> Cell:
    """Return the cell of a value.

    Args:
        value: As `to_values` returns it; a vector also as an array, and a blob as `Blob`.
        kind: The kind of its column, see `columns.ColumnLine.kind`.
        similar: See `Cell.similar`.
        source: The address of the value, if it is an image, audio or video.
    """
    if value is None:
        return Cell("null", "null")
    if isinstance(value, bytes):
        return _binary(value, source)
    if isinstance(value, Blob):
        return _blob(value, source)
    if kind == "vector" and isinstance(value, (list, pa.Array)):
        return _vector(value, similar)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        is_plain = isinstance(value, (str, bool))
        return _text(str(value) if is_plain else to_text(_without_bytes(value)))
    return Cell("number", f"{value:.6g}" if isinstance(value, float) else str(value))


def _text(text: str) -> Cell:
    rest = max(0, len(text) - _LONGEST)
    return Cell("text", text[:_LONGEST], rest, is_long=len(text) > _WIDE)


def _without_bytes(value: Any) -> Any:
    """Return a value with the sizes of bytes in it, in place of the bytes."""
    if isinstance(value, dict):
        return {name: _without_bytes(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_bytes(each) for each in value]
    return f"{format_bytes(len(value))} of bytes" if isinstance(value, bytes) else value


def _vector(values: Sequence[Any] | pa.Array, similar: str) -> Cell:
    """Return the cell of a vector. Only the numbers that it shows are converted."""
    step = max(1, math.ceil(len(values) / _MOST_POINTS))
    points = line_points(_numbers(values[::step]), SPARK_WIDTH, SPARK_HEIGHT)
    head = ", ".join(f"{each:.3g}" for each in _numbers(values[:4]))
    return Cell(
        "vector", f"[{head}{', …' if len(values) > 4 else ''}]", points=points, similar=similar
    )


def _numbers(values: Sequence[Any] | pa.Array) -> list[float]:
    items = to_values(values) if isinstance(values, pa.Array) else values
    return [math.nan if each is None else float(each) for each in items]


def _blob(blob: Blob, source: str) -> Cell:
    if blob.head is None:
        return Cell("binary", f"blob, {format_bytes(blob.size)}")
    cell = _binary(blob.head, source, blob.size)
    return replace(cell, text=f"blob, {cell.text}")


def _binary(data: bytes, source: str, size: int | None = None) -> Cell:
    """Return the cell of bytes, or of the first of so many bytes."""
    size = len(data) if size is None else size
    media_type = type_of_media(data)
    text = format_bytes(size)
    if media_type is None:
        return Cell("binary", f"{text}: {data[:12].hex(' ')}{' …' if size > 12 else ''}")
    if not source or size > LARGEST_MEDIA:
        return Cell("binary", f"{media_type}, {text}")
    return Cell(media_type.partition("/")[0], f"{media_type}, {text}", source=source)


def type_of_media(data: bytes) -> str | None:
    """Return the media type of an image, audio or video that cannot contain scripts, or None."""
    for magic, media_type in _MEDIA:
        if data.startswith(magic):
            return media_type
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    return _MP4.get(data[8:12]) if data[4:8] == b"ftyp" else None


# -- columns ---------------------------------------------------------------------------------------


_VECTOR_ITEMS = {"float16", "float32", "float64", "uint8", "bfloat16"}
_LISTS = {"list", "large_list", "fixed_size_list"}
_BINARY = {"binary", "large_binary", "binary_view", "fixed_size_binary"}
_EXTENSION = "ARROW:extension:name"
_BLOB_KEY = "lance-encoding:blob"
_BLOB_EXTENSION = "lance.blob"


@dataclass(frozen=True)
class ColumnLine:
    """A column, or a field of one."""

    name: str
    path: str
    """The names down to it, joined by dots."""
    depth: int
    type: str
    kind: str
    """``vector``, ``blob``, ``text``, ``number``, ``binary`` or ``other``."""
    nullable: bool
    metadata: dict[str, str]


def column_lines(schema: JsonArrowSchema | None) -> list[ColumnLine]:
    """Return the lines of a schema; none without one."""
    return list(_lines(schema.fields, (), 0)) if schema else []


def _lines(
    fields: Iterable[JsonArrowField], parent: tuple[str, ...], depth: int
) -> Iterator[ColumnLine]:
    for each in fields:
        path, metadata = (*parent, each.name), dict(each.metadata or {})
        kind = kind_of(each)
        text = "blob" if kind == "blob" else type_text(each.type, metadata)
        yield ColumnLine(
            each.name, ".".join(path), depth, text, kind, each.nullable is not False, metadata
        )
        if kind != "blob":
            yield from _lines(_inner_fields(each.type), path, depth + 1)


def _inner_fields(type_: JsonArrowDataType) -> list[JsonArrowField]:
    """Return the named fields in a type, also inside lists, whose items have no name."""
    while type_.type in _LISTS and type_.fields:
        type_ = type_.fields[0].type
    return list(type_.fields or ()) if type_.type == "struct" else []


def kind_of(field: JsonArrowField) -> str:
    """Return the kind of a column, see `ColumnLine.kind`."""
    metadata = field.metadata or {}
    name = field.type.type
    if metadata.get(_BLOB_KEY) == "true" or metadata.get(_EXTENSION, "").startswith(
        _BLOB_EXTENSION
    ):
        return "blob"
    if dimension_of(field.type):
        return "vector"
    if name in _BINARY:
        return "binary"
    if name in ("utf8", "large_utf8", "utf8_view"):
        return "text"
    return "number" if name.rstrip("0123456789") in ("int", "uint", "float", "decimal") else "other"


def dimension_of(type_: JsonArrowDataType) -> int | None:
    """Return the dimension of a vector type, or None for other types."""
    is_vector = (
        type_.type == "fixed_size_list"
        and type_.fields is not None
        and _item_name(type_.fields[0]) in _VECTOR_ITEMS
    )
    return type_.length if is_vector else None


def _item_name(item: JsonArrowField) -> str:
    extension = (item.metadata or {}).get(_EXTENSION, "")
    return "bfloat16" if extension == "lance.bfloat16" else item.type.type


_TEMPORAL = ("timestamp", "time32", "time64", "duration")


def has_units(lines: Iterable[ColumnLine]) -> bool:
    """Return whether types of a schema have units, which the JSON of a schema leaves out."""
    return any(name in each.type for each in lines for name in _TEMPORAL)


def temporal_text(type_: pa.DataType) -> str:
    """Return a type of times with its unit and zone, such as ``timestamp[us, UTC]``, or ""."""
    zone = f", {type_.tz}" if pa.types.is_timestamp(type_) and type_.tz else ""
    is_temporal = pa.types.is_temporal(type_) and not pa.types.is_date(type_)
    is_known = is_temporal and hasattr(type_, "unit")
    return f"{str(type_).partition('[')[0]}[{type_.unit}{zone}]" if is_known else ""


def with_units(fields: Iterable[JsonArrowField], arrow: Iterable[pa.Field]) -> None:
    """Add units and zones to the names of types, also inside nested types.

    Args:
        fields: Fields of a schema in JSON, which are changed.
        arrow: The same fields with their types in Arrow.
    """
    for each, known in zip(fields, arrow, strict=False):
        type_ = known.type
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        each.type.type = temporal_text(type_) or each.type.type
        inner = [type_.field(i) for i in range(type_.num_fields)]
        if each.type.fields:
            with_units(each.type.fields, inner)


def type_text(type_: JsonArrowDataType, metadata: dict[str, str] | None = None) -> str:
    """Return a readable type: ``vector[768] of float32``, ``list of struct``."""
    extension = (metadata or {}).get(_EXTENSION)
    if extension:
        return extension
    inner = type_.fields[0] if type_.fields else None
    if dimension_of(type_) and inner is not None:
        return f"vector[{type_.length}] of {_item_name(inner)}"
    if type_.type in _LISTS and inner is not None:
        size = f"[{type_.length}]" if type_.type == "fixed_size_list" else ""
        return f"list{size} of {type_text(inner.type, dict(inner.metadata or {}))}"
    if type_.type == "map" and inner is not None and inner.type.fields:
        key, value = (type_text(each.type) for each in inner.type.fields[:2])
        return f"map of {key} to {value}"
    if type_.type.startswith("decimal") and type_.length is not None:
        return f"decimal({type_.length // 1000}, {type_.length % 1000})"
    return f"{type_.type}[{type_.length}]" if type_.length is not None else type_.type


_HIDDEN = "(not shown)"


def shown_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """Return properties by name, without the values that may be secrets."""
    return {
        key: _HIDDEN if is_secret(key) else redact(value)
        for key, value in sorted((properties or {}).items())
    }
