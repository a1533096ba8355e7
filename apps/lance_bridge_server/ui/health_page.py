"""The pages about a server: requests, catalogs, audit log and migrations, and the doctor."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError
from starlette.responses import FileResponse, Response

from lance_bridge.errors import invalid, unsupported
from lance_bridge.namespace import LanceBridgeNamespace
from lance_bridge_doctor import Diagnosis, diagnose_namespace
from lance_bridge_federated import FederatedNamespace
from lance_bridge_migrate import Migrations, Record

from ..access.audit import trail_of
from ..access.permissions import LIST_MIGRATIONS, READ_AUDIT_LOG, RUN_DOCTOR, Access
from ..gateway.gateway import Gateway
from ..http.exchange import exchange_of
from ..http.lifecycle import Process
from ..monitoring import Metrics
from .rendering import PRIVATE_HEADERS
from .request import (
    OPERATION_BY_NAME,
    Result,
    UiRequest,
    as_result,
    error_text,
    gather,
    public_finding,
)
from .sign_in import Forms
from .tree import load_tree

# -- requests --------------------------------------------------------------------------------------


_OK = "OK"
_MEDIAN, _SLOWEST = 0.5, 0.95


@dataclass(frozen=True)
class OperationSummary:
    """The requests for one operation, or one page."""

    operation: str
    requests: int
    errors: dict[str, int]
    """The number of failed requests, by code."""
    median: float | None
    """The approximate median duration in seconds; None if unknown."""
    slowest: float | None
    """The approximate 95th percentile of the duration in seconds; None if unknown."""


def summarize(metrics: Metrics) -> list[OperationSummary]:
    """Return the summary of each operation, ordered by the number of requests."""
    codes: dict[str, dict[str, int]] = defaultdict(dict)
    for each in metrics.samples("lance_bridge_requests"):
        if each.name.endswith("_total"):
            codes[each.labels["operation"]][each.labels["code"]] = int(each.value)
    buckets: dict[str, dict[float, float]] = defaultdict(dict)
    for each in metrics.samples("lance_bridge_request_seconds"):
        if each.name.endswith("_bucket"):
            buckets[each.labels["operation"]][float(each.labels["le"])] = each.value
    found = [
        OperationSummary(
            operation,
            sum(counts.values()),
            {code: count for code, count in sorted(counts.items()) if code != _OK},
            quantile(buckets[operation], _MEDIAN),
            quantile(buckets[operation], _SLOWEST),
        )
        for operation, counts in codes.items()
    ]
    return sorted(found, key=lambda each: (-each.requests, each.operation))


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return a quantile of a histogram, as Prometheus' ``histogram_quantile`` does.

    Args:
        buckets: How many values are at most each limit, including infinity.
    """
    limits = sorted(buckets)
    wanted = share * buckets[limits[-1]] if limits else 0.0
    below, lower = 0.0, 0.0
    for limit in limits if wanted else ():
        if buckets[limit] >= wanted:
            if math.isinf(limit):
                return lower or None
            part = (wanted - below) / (buckets[limit] - below)
            return lower + (limit - lower) * part
        below, lower = buckets[limit], limit
    return None


# -- page ------------------------------------------------------------------------------------------


T = TypeVar("T")

_LINES = 50
_MIGRATIONS = 20
_DOCTOR_LIMIT = 500
_DOCTOR_SECONDS = 60.0
_SECONDS = 10.0
_REPORT = "report.html"


class HealthPages:
    """The pages about a server and its catalogs."""

    def __init__(self, gateway: Gateway, process: Process, forms: Forms) -> None:
        self._gateway = gateway
        self._metrics = process.metrics
        self._forms = forms

    async def show_health(self, ui: UiRequest) -> Response:
        """Return the page with requests, catalogs, the audit log and migrations."""
        tree, states, lines, migrations = await gather(
            load_tree(ui, ()),
            self._gateway.health.states(),
            self._part(ui, READ_AUDIT_LOG, self._last_lines),
            self._part(ui, LIST_MIGRATIONS, _list_migrations),
        )
        visible = self._gateway.visible_catalogs(ui.principal)
        return ui.page(
            "health.html",
            section="Health",
            tree=tree,
            operations=summarize(self._metrics),
            states={name: state for name, state in states.items() if name in visible},
            problems=[
                (name, each.since, each.text)
                for name, each in self._gateway.health.problems().items()
                if name in visible
            ],
            lines=lines,
            has_file=self._gateway.audit is not None and self._gateway.audit.file is not None,
            migrations=migrations,
            can_run_doctor=any(
                self._may(ui, RUN_DOCTOR, self._path(each)) for each in self._with_doctor(visible)
            ),
        )

    async def ask_doctor(self, ui: UiRequest) -> Response:
        """Return the page that asks for confirmation to run the doctor."""
        return await self._doctor_page(ui, self._catalogs_for_doctor(ui))

    async def run_doctor(self, ui: UiRequest) -> Response:
        """Run the doctor on all catalogs where the principal may, or continue in one catalog."""
        fields = await self._forms.read(ui.http)
        catalogs = self._catalogs_for_doctor(ui)
        if "catalog" in fields:  # continue in this catalog, with the next page of its tables
            catalogs = [each for each in catalogs if each == fields["catalog"]]
            if not catalogs:
                name = fields["catalog"][:100]
                raise PermissionDeniedError(
                    f"{ui.principal.name} may not run the doctor on '{name}'"
                )
        page = fields.get("page")
        parts = await gather(*(self._diagnose(ui, each, page) for each in catalogs))
        return await self._doctor_page(ui, catalogs, dict(zip(catalogs, parts, strict=True)))

    async def send_report(self, ui: UiRequest) -> Response:
        """Send the report of a migration as a file: the security headers would block its style."""
        self._require(ui, LIST_MIGRATIONS, ())
        [identifier] = ui.names[:1] or [""]
        path: Path = await self._run(ui, partial(_report_file, identifier))
        headers = {**PRIVATE_HEADERS, "Content-Security-Policy": "sandbox"}
        return FileResponse(path, headers=headers, filename=f"{identifier}.html")

    # -- rights ------------------------------------------------------------------------------------

    def _may(self, ui: UiRequest, right: str, path: tuple[str, ...]) -> bool:
        return self._gateway.authorizer.check(ui.principal, right, path).allowed

    def _require(self, ui: UiRequest, right: str, path: tuple[str, ...]) -> None:
        """Check a right, and record the decision.

        Raises:
            PermissionDeniedError: (15)
        """
        decision = self._gateway.authorizer.check(ui.principal, right, path)
        trail_of(ui.http).record(Access(right, path), decision)
        if not decision.allowed:
            raise PermissionDeniedError(f"{ui.principal.name} may not do this: {right}")

    def _with_doctor(self, catalogs: Iterable[str]) -> list[str]:
        """Return the catalogs that the doctor supports."""
        known = self._gateway.catalogs
        return [each for each in catalogs if isinstance(known[each], LanceBridgeNamespace)]

    def _path(self, catalog: str) -> tuple[str, ...]:
        is_child = isinstance(self._gateway.namespace, FederatedNamespace)
        return (catalog,) if is_child else ()

    def _catalogs_for_doctor(self, ui: UiRequest) -> list[str]:
        """Return the catalogs on which the principal may run the doctor.

        Raises:
            PermissionDeniedError: (15) there are none.
            UnsupportedOperationError: (0) the doctor supports none of them.
        """
        visible = self._gateway.visible_catalogs(ui.principal)
        allowed = [each for each in visible if self._may(ui, RUN_DOCTOR, self._path(each))]
        for each in allowed or visible[:1]:
            self._require(ui, RUN_DOCTOR, self._path(each))
        if not allowed:
            raise PermissionDeniedError(f"{ui.principal.name} may not run the doctor")
        known = self._with_doctor(allowed)
        if not known:
            raise unsupported("The doctor does not know pylance's own catalogs, dir and rest")
        return known

    # -- work --------------------------------------------------------------------------------------

    async def _part(self, ui: UiRequest, right: str, work: Callable[[], T]) -> Result[T] | None:
        """Return a part of the page, or None if the principal may not see it."""
        try:
            self._require(ui, right, ())
        except PermissionDeniedError:
            return None
        return await as_result(self._run(ui, work))

    async def _run(self, ui: UiRequest, work: Callable[[], T], seconds: float = _SECONDS) -> T:
        """Run work in one of the threads for operations."""
        return await self._gateway.work(
            ui.http, work, OPERATION_BY_NAME["list_namespaces"], seconds
        )

    def _last_lines(self) -> list[dict[str, Any]]:
        audit = self._gateway.audit
        return audit.last_lines(_LINES) if audit else []

    async def _diagnose(self, ui: UiRequest, catalog: str, page: str | None) -> Result[Diagnosis]:
        known = self._gateway.catalogs[catalog]
        work = partial(diagnose_namespace, known, catalog, limit=_DOCTOR_LIMIT, page_token=page)
        run = partial(self._run, ui, work, _DOCTOR_SECONDS)
        return await as_result(self._gateway.watched[catalog].wait_for(run))

    async def _doctor_page(
        self,
        ui: UiRequest,
        catalogs: Sequence[str],
        results: dict[str, Result[Diagnosis]] | None = None,
    ) -> Response:
        errors = [each.error for each in (results or {}).values() if each.error]
        if errors:
            exchange_of(ui.http.scope).code = errors[0].code.value
        return ui.page(
            "doctor.html",
            section="Health",
            tree=await load_tree(ui, ()),
            catalogs=catalogs,
            results=results,
            limit=_DOCTOR_LIMIT,
            token=self._forms.token(ui.http),
            public=public_finding,
        )


def _list_migrations() -> list[tuple[str, Record | str, bool]]:
    """Return the latest migrations: identifier, record or its problem, whether it has a report."""
    kept = Migrations()
    return [_load_migration(kept, each) for each in reversed(kept.ids()[-_MIGRATIONS:])]


def _load_migration(kept: Migrations, identifier: str) -> tuple[str, Record | str, bool]:
    migration = kept.get(identifier)
    has_report = (migration.directory / _REPORT).is_file()
    try:
        return identifier, migration.record(), has_report
    except LanceNamespaceError as error:
        return identifier, error_text(error), has_report


def _report_file(identifier: str) -> Path:
    path = Migrations().get(identifier).directory / _REPORT
    if not path.is_file():
        raise invalid(f"Migration {identifier} has no report: see `lance-bridge migrate report`")
    return path
