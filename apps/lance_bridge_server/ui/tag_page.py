"""The pages for creating a tag: the form, and its confirmation."""

from __future__ import annotations

from dataclasses import dataclass

from lance_namespace.errors import (
    ErrorCode,
    InvalidInputError,
    LanceNamespaceError,
    TableTagAlreadyExistsError,
    TableVersionNotFoundError,
)
from starlette.responses import Response

from lance_bridge.errors import invalid

from ..errors import STATUS_BY_CODE
from ..http.exchange import exchange_of
from .rendering import address, html_page
from .request import UiRequest, error_text, gather
from .rows import State
from .sign_in import Forms, redirect
from .tree import load_tree

_FORM_ERRORS = (InvalidInputError, TableTagAlreadyExistsError, TableVersionNotFoundError)
"""Errors that the form shows. Others have their own pages."""
_MOST_DIGITS = 18


@dataclass(frozen=True)
class TagPages:
    """The pages for creating a tag."""

    forms: Forms

    async def ask(self, ui: UiRequest) -> Response:
        """Return the form; with a name and a version, the page that asks for confirmation."""
        return await self._page(ui, ui.text("name"), ui.text("version"))

    async def create(self, ui: UiRequest) -> Response:
        """Create the tag, and return a redirect to the table's versions."""
        fields = await self.forms.read(ui.http)
        name, version = fields.get("name", ""), fields.get("version", "")
        path = ui.names
        try:
            request = {"id": path, "tag": name, "version": _version(version)}
            await ui.call("create_table_tag", request)
        except _FORM_ERRORS as error:
            return await self._page(ui, name, version, error)
        return redirect(address("versions", path))

    async def _page(
        self, ui: UiRequest, name: str, version: str, error: LanceNamespaceError | None = None
    ) -> Response:
        path = ui.names
        tree, table = await gather(
            load_tree(ui, path, is_table=True),
            ui.call("describe_table", {"id": path, "check_declared": True}),
        )
        if error is not None:
            exchange_of(ui.http.scope).code = error.code.value
        return html_page(
            "tag.html",
            status=STATUS_BY_CODE[ErrorCode(error.code)] if error else 200,
            principal=ui.principal,
            tree=tree,
            path=path,
            tab="versions",
            state=State(),
            table=table,
            name=name,
            version=version,
            message=error_text(error) if error else "",
            is_complete=bool(name and version) and error is None,
            token=self.forms.token(ui.http),
        )


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise invalid(f"'{text[:40]}' is not a version: versions are numbers")
    return int(text)
