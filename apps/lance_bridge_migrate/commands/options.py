"""Options shared by several migration commands, declared as the fields of dataclasses.

A command takes a parameter of such a class. `with_options` replaces it with the fields of the class
in the command's signature, where typer finds them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Argument, Option

from lance_bridge.user_files import MIGRATIONS, default_directory
from lance_bridge_cli.arguments import OutputOption, Properties, parse_name, usage_error
from lance_bridge_cli.output import Output

from .. import Level

Command = Callable[..., None]
Repeated = list[str] | None
"""The values of an option that may be repeated."""


def with_options(command: Command) -> Command:
    """Decorate a command to take the fields of its dataclass parameters as options."""
    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: group for name, group in hints.items() if is_dataclass(group)}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name in groups:
            parameters += _parameters_of(groups[parameter.name])
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    """Return the fields of a dataclass as keyword parameters, fields of base classes last."""
    hints = get_type_hints(group, include_extras=True)
    own = [name for each in group.__mro__ for name in inspect.get_annotations(each)]
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=hints[each.name],
        )
        for each in sorted(fields(group), key=lambda each: own.index(each.name))
    ]


def migration_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the identifiers of migrations that start with `incomplete`, latest first."""
    state = context.params.get("state")
    directory = (Path(state) if state else default_directory()) / MIGRATIONS
    try:
        found = [each.name for each in directory.iterdir() if each.name.startswith(incomplete)]
    except OSError:
        return []
    return sorted(found, reverse=True)


MigrationId = Annotated[
    str,
    Argument(help="The migration's identifier: see migrate list.", autocompletion=migration_ids),
]

StateDirectory = Annotated[
    str | None,
    Option("--state", help="Directory of plans and journals; by default $LANCE_BRIDGE_STATE."),
]
Parallelism = Annotated[
    int | None,
    Option("--parallelism", min=1, max=64, help="Number of tables to process in parallel."),
]
SourceProperties = Annotated[
    Repeated, Option("--source-property", "-s", help="A property of the source: key=value.")
]
CreateNamespaces = Annotated[
    bool, Option("--make-namespaces/--no-namespaces", help="Create missing namespaces.")
]
NameTemplate = Annotated[
    str, Option("--name", help="Name of each new table; {table} is its current name.")
]


def http_url(value: str | None) -> str | None:
    """Return the URL; exit with a usage error if its scheme is not http or https."""
    if value is not None and not value.lower().startswith(("http://", "https://")):
        raise usage_error("--when-done-url must begin with http:// or https://")
    return value


@dataclass(frozen=True)
class TargetNamespace:
    """The namespace of new tables in the target."""

    namespace: Annotated[
        str | None, Option("--namespace", "-n", help="The target's namespace: db, or main.db.")
    ] = None
    make_namespaces: CreateNamespaces = True

    def as_options(self) -> dict[str, Any]:
        """Return the options of a migration into a catalog."""
        options: dict[str, Any] = {"make_namespaces": self.make_namespaces}
        if self.namespace is not None:
            options["namespace"] = parse_name(self.namespace)
        return options


@dataclass(frozen=True)
class Execution:
    """Options of a run. None means the value of the last run, or the default."""

    parallelism: Parallelism = None
    verify: Annotated[
        Level | None, Option("--verify", help="Verification level of each table.")
    ] = None
    skip_blocked: Annotated[bool, Option("--skip-blocked", help="Skip blocked tables.")] = False
    stop_on_error: Annotated[
        bool, Option("--stop-on-error", help="Start no further table after a failure.")
    ] = False
    when_done: Annotated[
        str | None,
        Option(
            "--when-done",
            help="A command to run at the end; it gets LANCE_BRIDGE_MIGRATION and "
            "LANCE_BRIDGE_MIGRATION_STATE.",
        ),
    ] = None
    when_done_url: Annotated[
        str | None,
        Option(
            "--when-done-url",
            help="URL to post the result to at the end, as JSON: http:// or https://.",
            callback=http_url,
        ),
    ] = None
    properties: Properties = None
    state: StateDirectory = None
    output: OutputOption = Output.TEXT


@dataclass(frozen=True)
class Reconnection:
    """Options of a command for a saved migration."""

    parallelism: Parallelism = None
    source_properties: SourceProperties = None
    properties: Properties = None
    state: StateDirectory = None
    output: OutputOption = Output.TEXT


@dataclass(frozen=True)
class Planning(Execution):
    """Options of a command that makes a plan and may execute it."""

    execute: Annotated[
        bool, Option("--execute/--dry-run", help="Execute the plan, or only show and save it.")
    ] = False


@dataclass(frozen=True)
class SelectedTables(Planning):
    """Options of a command that makes a plan for selected tables."""

    include: Annotated[
        Repeated,
        Option(
            "--include",
            "-i",
            help="Pattern of tables to include: sales.*. Repeatable; default: all.",
        ),
    ] = None
    exclude: Annotated[
        Repeated, Option("--exclude", "-x", help="Pattern of tables to exclude. Repeatable.")
    ] = None

    @property
    def selection(self) -> dict[str, Any]:
        """The options of a migration that selects tables."""
        chosen = {"include": list(self.include or ()), "exclude": list(self.exclude or ())}
        return {key: value for key, value in chosen.items() if value}


@dataclass(frozen=True)
class SparkSettings:
    """The Spark session of a command."""

    metastore: Annotated[
        str | None, Option("--metastore", help="Metastore of Spark's tables: thrift://host:9083.")
    ] = None
    spark_conf: Annotated[
        Repeated, Option("--spark-conf", "-c", help="A setting of Spark: key=value. Repeatable.")
    ] = None


@dataclass(frozen=True)
class LanceFiles:
    """Options of the Lance files to write."""

    data_storage_version: Annotated[
        str | None, Option("--data-storage-version", help="Of Lance's files: 2.0, 2.1, stable.")
    ] = None
    max_rows_per_file: Annotated[
        int | None, Option("--max-rows-per-file", min=1, help="Of Lance's files.")
    ] = None
