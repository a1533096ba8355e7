"""The commands ``lance-bridge keys``: API keys of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lance_bridge_cli.arguments import OutputOption, exit_on_error, parse_duration
from lance_bridge_cli.output import Output, RowsOption, RowsOutput, print_list, print_result

_COLUMNS = ("id", "name", "groups", "created", "expires", "state")

app = typer.Typer(help="API keys of a server: add, list and revoke.", no_args_is_help=True)

KeyFile = Annotated[
    Path, typer.Option("--file", "-f", help="The key file; a running server reads changes.")
]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The principal of the key.")],
    file: KeyFile,
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", help="A group of the principal. Repeatable."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="When it expires, such as 90d; never if unset.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a key and print it. The file stores only a hash: the key cannot be shown again.

    Example: lance-bridge keys add ann --file /data/keys.json --group analysts --expires 90d
    """
    lifetime = None if expires is None else parse_duration("--expires", expires)
    with exit_on_error():
        from ..access.authentication import ApiKeyFile  # noqa: PLC0415 - takes seconds to import

        key, entry = ApiKeyFile(file).add(name, groups or (), lifetime)
    print_result(output, key, {**_row(entry), "key": key})


@app.command("list")
def list_keys(file: KeyFile, output: RowsOption = RowsOutput.TEXT) -> None:
    """List the keys of a file, with the state of each. The keys themselves are not in it.

    Example: lance-bridge keys list --file /data/keys.json
    """
    with exit_on_error():
        from ..access.authentication import ApiKeyFile  # noqa: PLC0415 - takes seconds to import

        rows = [_row(each) for each in ApiKeyFile(file).entries().values()]
    print_list(output, list(_COLUMNS), rows, "keys")


@app.command()
def revoke(
    identifier: Annotated[str, typer.Argument(help="The key's identifier; see: keys list.")],
    file: KeyFile,
    output: OutputOption = Output.TEXT,
) -> None:
    """Revoke a key: servers that use the file reject it from the next request on.

    Example: lance-bridge keys revoke 0123456789abcdef --file /data/keys.json
    """
    with exit_on_error():
        from ..access.authentication import ApiKeyFile  # noqa: PLC0415 - takes seconds to import

        entry = ApiKeyFile(file).revoke(identifier)
    print_result(output, f"revoked the key {entry.id} of {entry.name}", _row(entry))


def _row(entry: Any) -> dict[str, Any]:
    fields = entry.model_dump(mode="json", exclude={"salt", "hash", "revoked"})
    return {**fields, "groups": ",".join(entry.groups), "state": entry.state()}
