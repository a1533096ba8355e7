"""The commands ``lance-bridge serve``, and ``lance-bridge keys`` for the API keys of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lance_bridge.exit_codes import FAILED
from lance_bridge_cli import api
from lance_bridge_cli.arguments import OutputOption, exit_on_error, parse_duration, usage_error
from lance_bridge_cli.output import (
    UNLIMITED,
    Output,
    RowsOption,
    RowsOutput,
    make_table,
    message,
    print_line,
    print_list,
    print_parts,
    print_result,
)

from ..signals import record_reloads

if TYPE_CHECKING:
    from ..config import ServerSettings, SettingsSource


def serve(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", help="The configuration file, in YAML.")
    ] = None,
    catalogs: Annotated[
        list[str] | None,
        typer.Option(
            "--catalog",
            "-c",
            help="A catalog: NAME=IMPL, NAME=IMPL:KEY=VALUE, or NAME alone for one of your own "
            "configuration file. Repeatable.",
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", help="A catalog's property: NAME.KEY=VALUE. Repeatable."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            help="The only catalog: serve it as the root namespace, not as a child of it."
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 127.0.0.1 by default.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port; 2333 by default, 0 for any free port."),
    ] = None,
    socket: Annotated[Path | None, typer.Option(help="Unix socket to listen on instead.")] = None,
    api_keys: Annotated[
        Path | None, typer.Option(help="A file of API keys; see: keys add.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="The certificate to serve TLS with, in PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, in PEM.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="The number of processes.")] = None,
    allow_anonymous: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous", help="Serve requests without credentials, at any address."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Call every catalog, print what would be served, and exit."),
    ] = False,
    explain: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            metavar="PRINCIPAL OPERATION ID",
            help="Print whether a principal may do an operation on an object, which policies "
            "decide, and exit. Example: --explain ann query_table prod.sales.orders. A batch has "
            "several IDs, separated by commas; those of batch_commit_tables are OPERATION=ID.",
        ),
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", help="A group of that principal. Repeatable.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that --check waits for responses.")
    ] = 10.0,
    output: OutputOption = Output.TEXT,
) -> None:
    """Serve catalogs to every Lance client: the Lance REST specification, and LanceDB's protocol.

    Options take precedence over the configuration file. Addresses are printed to standard output,
    and that of the catalog page to standard error.
    Ctrl-C and SIGTERM complete the requests that are being answered, and end it with exit code 0.

    Example: lance-bridge serve --catalog prod=hive:uri=thrift://metastore:9083 --check
    """
    if explain is None and not check:
        record_reloads()  # first, because the imports below take seconds
    listener = {"host": host, "port": port, "socket": socket}
    tls = {"certificate": tls_certificate, "key": tls_key}
    overrides: dict[str, Any] = {
        "root": root,
        "listeners": [_given(listener)] if _given(listener) else None,
        "authentication": [{"method": "api_keys", "file": api_keys}] if api_keys else None,
        "tls": _given(tls) or None,
        "workers": workers,
        "allow_anonymous": allow_anonymous or None,
    }
    if config is None and not catalogs:
        raise usage_error("Give a --catalog, such as prod=hive:uri=thrift://host:9083, or --config")
    added = parse_catalogs(catalogs or (), properties or ())
    with exit_on_error():
        from lance_bridge.extras import require  # noqa: PLC0415 - takes seconds to import

        require(
            "server",
            "starlette",
            "uvicorn",
            "joserfc",
            "httpx",
            "jinja2",
            "prometheus_client",
        )
    from ..config import SettingsSource  # noqa: PLC0415 - the same

    source = SettingsSource(config, _given(overrides), added)
    if explain is not None:
        _explain(source, explain, groups or [], output)
    elif check:
        _check(source, timeout, output)
    else:
        _serve(source)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def parse_catalogs(catalogs: Sequence[str], properties: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the properties in the options, by catalog, or exit if an option is malformed."""
    found: dict[str, dict[str, str]] = {}
    for each in catalogs:
        name, equals, rest = each.partition("=")
        impl, colon, pair = rest.partition(":")
        key, is_pair, value = pair.partition("=")
        if not name or (equals and not impl) or (colon and not (key and is_pair)):
            raise usage_error("--catalog must be NAME=IMPL, NAME=IMPL:KEY=VALUE or NAME")
        if name in found:
            raise usage_error(f"--catalog {name} is given twice")
        found[name] = {**({"impl": impl} if impl else {}), **({key: value} if key else {})}
    for each in properties:
        path, equals, value = each.partition("=")
        name, dot, key = path.partition(".")
        if not (name and dot and key and equals):
            raise usage_error("--property must be NAME.KEY=VALUE")
        found.setdefault(name, {})[key] = value
    return found


def _serve(source: SettingsSource) -> None:
    from .listening import (  # noqa: PLC0415 - takes seconds to import
        addresses_of,
        open_sockets,
        page_address,
        tls_context,
    )
    from .server import gateway_from_settings, run  # noqa: PLC0415 - the same

    settings = _read(source)
    with exit_on_misuse():
        if settings.tls is not None:
            tls_context(settings.tls)
        gateway = gateway_from_settings(settings, source)
    with exit_on_error():
        sockets = open_sockets(settings.listeners)
    addresses = addresses_of(sockets, settings.tls)
    for address in addresses:
        print_line(address)
    page = page_address(addresses, settings.login.address)
    if page and settings.ui and settings.log.format == "text":  # else programs read the lines
        typer.echo(f"Browse: {page}", err=True)
    run(gateway, source, settings, sockets)


def _explain(
    source: SettingsSource, question: tuple[str, str, str], groups: list[str], output: Output
) -> None:
    from ..access.authentication import Principal  # noqa: PLC0415 - takes seconds to import
    from ..access.authorizer import explain_request  # noqa: PLC0415 - the same
    from .catalogs import connect_catalogs, root_namespace  # noqa: PLC0415 - the same

    settings = _read(source)
    name, operation, identifier = question
    with exit_on_misuse():
        namespace = root_namespace(settings, connect_catalogs(settings, source.catalogs))
        authorizer = settings.authorization.make()
        principal = Principal(name, frozenset(groups))
        found = explain_request(authorizer, namespace, principal, operation, identifier)
    entries = found.get("entries", [])
    lines = _explanation(found)
    for each in entries:
        lines += [f"entry: {each['operation']} {'.'.join(each['id'])}"]
        lines += [f"  {line}" for line in _explanation(each)]
    lines += [f"problem: {found['problem']}"] if found["problem"] else []
    print_parts(output, found, lines)


def _explanation(found: Mapping[str, Any]) -> list[str]:
    policies = [" ".join(each.values()) for each in found["policies"]]
    lines = [f"{key}: {found[key]}" for key in ("decision", "answer")]
    return [*lines, *(f"policy: {each}" for each in policies or ["none applies"])]


def _check(source: SettingsSource, timeout: float, output: Output) -> None:
    from .catalogs import check  # noqa: PLC0415 - takes seconds to import
    from .listening import tls_context  # noqa: PLC0415 - the same
    from .server import gateway_from_settings  # noqa: PLC0415 - the same

    settings = _read(source)
    with exit_on_misuse():
        if settings.tls is not None:
            tls_context(settings.tls)
        audit_file = settings.audit.to if isinstance(settings.audit.to, Path) else None
        is_new = audit_file is not None and not audit_file.exists()
        gateway = gateway_from_settings(settings, source)
    rows = check(settings, gateway.catalogs, timeout)
    gateway.close()
    if audit_file is not None and is_new:
        audit_file.unlink()  # the server may run as another user
    shown = [{**row, "problem": row["problem"] or "none"} for row in rows]
    table = make_table(["type", "name", "problem"], shown, longest=UNLIMITED)
    summary = _summary(settings)
    lines = [f"{key.replace('_', ' ')}: {value}" for key, value in summary.items()]
    print_parts(output, {**summary, "checked": rows}, [*lines, table])
    if any(row["problem"] for row in rows):
        message("some catalogs or identity providers do not respond")
        raise typer.Exit(FAILED)


def _summary(settings: ServerSettings) -> dict[str, str]:
    from .listening import authority  # noqa: PLC0415 - takes seconds to import

    scheme = "https" if settings.tls else "http"
    listeners = [
        f"unix:{each.socket}" if each.socket else f"{scheme}://{authority(each.host, each.port)}"
        for each in settings.listeners
    ]
    methods: list[str] = [each.method for each in settings.authentication]
    if settings.allow_anonymous or not methods:
        methods.append("anonymous")
    return {
        "root": settings.root or "(the catalogs are its children)",
        "addresses": ", ".join(listeners),
        "authentication": ", ".join(methods),
        "authorization": settings.authorization.method,
        "workers": str(settings.workers),
    }


def _read(source: SettingsSource) -> ServerSettings:
    with exit_on_misuse():
        return source.read()


@contextmanager
def exit_on_misuse() -> Iterator[None]:
    """Exit with a message if the configuration is wrong, or something else fails."""
    with exit_on_error():
        try:
            yield
        except api.InvalidInputError as error:
            raise usage_error(str(error)) from error


# -- lance-bridge keys -----------------------------------------------------------------------------


_COLUMNS = ("id", "name", "groups", "created", "expires", "state")

keys = typer.Typer(help="API keys of a server: add, list and revoke.", no_args_is_help=True)

KeyFile = Annotated[
    Path, typer.Option("--file", "-f", help="The key file; a running server reads changes.")
]


@keys.command()
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


@keys.command("list")
def list_keys(file: KeyFile, output: RowsOption = RowsOutput.TEXT) -> None:
    """List the keys of a file, with the state of each. The keys themselves are not in it.

    Example: lance-bridge keys list --file /data/keys.json
    """
    with exit_on_error():
        from ..access.authentication import ApiKeyFile  # noqa: PLC0415 - takes seconds to import

        rows = [_row(each) for each in ApiKeyFile(file).entries().values()]
    print_list(output, list(_COLUMNS), rows, "keys")


@keys.command()
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
