"""Generates the page of the gateway's routes from the server's declarations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import lance_namespace as api
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lance_bridge_server.app import create_app
from lance_bridge_server.errors import STATUS_BY_CODE
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.lancedb.responses import REASONS
from lance_bridge_server.operations import OPERATIONS, Answer, Body, Operation

from .markdown import table_row

SPECIFICATION = Path(__file__).parents[1] / "tests" / "server" / "lance_namespace_openapi.yaml"
BODIES = {
    Body.JSON: "JSON",
    Body.NONE: "none",
    Body.ROWS: "rows, as an Arrow IPC stream (`application/vnd.apache.arrow.stream`)",
    Body.METADATA: "JSON: the bare map of the schema's metadata",
}
ANSWERS = {
    Answer.JSON: "JSON",
    Answer.EMPTY: "no body",
    Answer.VALUE: "JSON: a bare number or text",
    Answer.ROWS: "rows, as an Arrow IPC file, or as a stream for LanceDB",
    Answer.METADATA: "JSON: the bare map of the schema's metadata",
}
OF_EVERY_REQUEST = {"identity", "context", "id"}
"""Fields that the path and the headers contain."""
_SENTENCE_END = re.compile(r"(?<=[.:])\s+(?=[A-Z])")


def routes() -> str:
    """Return the page of routes."""
    lines = [
        "# REST routes",
        "",
        "The routes of `lance-bridge serve`, generated from its declarations and from the",
        "specification of the Lance namespace's REST protocol. [The REST",
        "Protocol](server.md#the-rest-protocol) describes their identifiers, headers, errors, and",
        "limits.",
        "",
        "A route with `{id}` takes the parameter `delimiter`, by default `$`, between the parts of",
        "the identifier. In a body, the field `id` may repeat it, and `identity` may have",
        "credentials, which headers override.",
        "",
        *_overview(),
        *_statuses(),
    ]
    for operation in _operations():
        lines += _operation(operation)
    return "\n".join([*lines, *_types(), *_lancedb_routes(), *_other_routes()]) + "\n"


def _operations() -> list[Operation]:
    """Return the operations, each once, with the first of its routes."""
    return list({each.name: each for each in reversed(OPERATIONS)}.values())[::-1]


def _overview() -> Iterator[str]:
    yield from ("## Operations", "", "| operation | route | what it does |", "|---|---|---|")
    for each in OPERATIONS:
        name = f"[`{each.name}`](#{each.name})"
        yield table_row(
            name, f"`{each.method} {each.path}`", _find_specification(each).get("summary", "")
        )


def _statuses() -> Iterator[str]:
    yield from ("", "## Statuses of errors", "")
    yield "An error is flat JSON with `code`, `error`, `instance` and `context`. LanceDB's client"
    yield "gets [some other statuses](server.md#errors-and-repeated-requests)."
    yield from ("", "| status | codes |", "|---|---|")
    for status in sorted(set(STATUS_BY_CODE.values())):
        codes = [
            f"{code.name} ({code.value})" for code, at in STATUS_BY_CODE.items() if at == status
        ]
        yield table_row(str(status), ", ".join(codes))


def _operation(operation: Operation) -> Iterator[str]:
    specified = _find_specification(operation)
    yield from ("", f"### {operation.name}", "", specified.get("summary", "") or operation.name, "")
    routes = [each for each in OPERATIONS if each.name == operation.name]
    yield from (f"- `{each.method} {each.path}`" for each in routes)
    yield f"- Body: {BODIES[operation.body]}"
    yield f"- Response: {operation.status}, {ANSWERS[operation.answer]}"
    parameters = [each for each in map(_resolve, specified["parameters"]) if _is_own(each)]
    if parameters:
        yield from ("", "| parameter | in | type | required | meaning |", "|---|---|---|---|---|")
    for each in parameters:
        kind, needed = each.get("schema", {}).get("type", ""), "yes" if each.get("required") else ""
        meaning = _sentence(each.get("description"))
        yield table_row(f"`{each['name']}`", each["in"], kind, needed, meaning)
    if operation.body is Body.JSON:
        yield from _fields("field of the body", operation.request, OF_EVERY_REQUEST)
    if operation.answer is Answer.JSON:
        yield from _fields("field of the response", _answer(operation), OF_EVERY_REQUEST)


def _fields(title: str, model: type[BaseModel], without: Collection[str] = ()) -> Iterator[str]:
    fields = {name: each for name, each in model.model_fields.items() if name not in without}
    if fields:
        yield from ("", f"| {title} | type | required | meaning |", "|---|---|---|---|")
    for name, field in fields.items():
        needed = "yes" if field.is_required() else ""
        meaning = _sentence(field.description)
        yield table_row(f"`{field.alias or name}`", _type_name(field.annotation), needed, meaning)


def _type_name(annotation: Any) -> str:
    """Return the name of a type, without its validators."""
    arguments = [each for each in get_args(annotation) if each is not type(None)]
    origin = get_origin(annotation)
    if _is_model(annotation):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if origin is None:
        return getattr(annotation, "__name__", str(annotation))
    if hasattr(annotation, "__metadata__"):
        return _type_name(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(map(_type_name, arguments))
    return f"{origin.__name__} of {_type_name(arguments[-1])}"


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _collect_models(annotation: Any, found: dict[str, type[BaseModel]]) -> None:
    """Add the models in a type, recursively."""
    for each in get_args(annotation):
        _collect_models(each, found)
    if _is_model(annotation) and annotation.__name__ not in found:
        found[annotation.__name__] = annotation
        for field in annotation.model_fields.values():
            _collect_models(field.annotation, found)


def _types() -> Iterator[str]:
    """Yield a section for each model in a body or response."""
    whole = [each.request for each in OPERATIONS] + [_answer(each) for each in OPERATIONS]
    fields = [field for model in whole for field in _shown_fields(model)]
    found: dict[str, type[BaseModel]] = {}
    for field in fields:
        _collect_models(field.annotation, found)
    yield from ("", "## Types")
    for name, model in sorted(found.items()):
        yield from ("", f"### {name}")
        yield from _fields("field", model)


def _answer(operation: Operation) -> Any:
    return get_type_hints(getattr(api.LanceNamespace, operation.name))["return"]


def _shown_fields(model: Any) -> list[FieldInfo]:
    fields = getattr(model, "model_fields", {})
    return [each for name, each in fields.items() if name not in OF_EVERY_REQUEST]


def _sentence(text: str | None) -> str:
    return _SENTENCE_END.split(" ".join((text or "").split()))[0]


def _is_own(parameter: Mapping[str, Any]) -> bool:
    return parameter.get("name") not in ("id", "delimiter")


@cache
def _document() -> Any:
    return yaml.safe_load(SPECIFICATION.read_text(encoding="utf-8"))


def _find_specification(operation: Operation) -> dict[str, Any]:
    """Return the specification of an operation; without a summary if it lacks the route."""
    paths = {path.rstrip("/"): methods for path, methods in _document()["paths"].items()}
    shared = paths.get(operation.path, {})
    found = dict(shared.get(operation.method.lower(), {}))
    found["parameters"] = [*shared.get("parameters", ()), *found.get("parameters", ())]
    return found


def _resolve(parameter: dict[str, Any]) -> dict[str, Any]:
    reference = parameter.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = _document()["components"]["parameters"].get(reference, parameter)
    return found


def _lancedb_routes() -> Iterator[str]:
    yield from ("", "## LanceDB's client", "")
    yield "It calls the routes above with a slash at the end and the header `x-lancedb-database`;"
    yield "[LanceDB](server.md#lancedb) describes how their bodies and responses differ. Of its"
    yield "other routes, these are refused with 406 and the reason; the rest needs LanceDB"
    yield "Enterprise."
    yield from ("", "| last part of the route | reason |", "|---|---|")
    yield from (table_row(f"`{part}`", reason) for part, reason in REASONS.items())


def _other_routes() -> Iterator[str]:
    """Yield the routes outside of the protocol: the catalog page and monitoring."""
    app: Any = create_app(Gateway(None))  # type: ignore[arg-type]  # its routes call no catalog
    own = {each.path for each in OPERATIONS}
    yield from ("", "## The catalog page and monitoring", "")
    yield "Pages return HTML; [The Catalog Page](server.md#the-catalog-page) describes them."
    yield from ("", "| route | name in metrics and in the audit log |", "|---|---|")
    for route in app.routes:
        if route.path not in own:
            [method] = set(route.methods) - {"HEAD"}
            path = route.path.replace(":path", "")
            name = f"`{route.name}`" if route.name.startswith("ui_") else ""
            yield table_row(f"`{method} {path}`", name)
