"""The program: its groups of commands, and its commands without a group.

A group is imported when one of its commands is used, not to list them: the libraries that the
commands use take seconds to import; ``lance-bridge --help`` and the completion of a group's name
need none of them. Other packages add commands with entry points of the group
``lance_bridge.commands``, which have the command's name and refer to a `typer.Typer` or to the
function of one command.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from .arguments import catalog_names, exit_on_error, usage_error
from .help import (
    EXIT_CODES,
    HELP_OPTIONS,
    QUIET_HELP,
    VERBOSE_HELP,
    hide_flag_types,
    prepare,
)
from .output import Verbosity, color_system, log_messages, print_line, set_verbosity

ENTRY_POINTS = "lance_bridge.commands"
JARS = "lance_bridge.jars"
"""The group of entry points that return a jar's path: see `lance_bridge_spark.jar`."""

logger = logging.getLogger(__name__)

GROUPS = (
    ("catalogs", "catalogs", "Catalogs: list and test them, and list their properties."),
    ("config", "configuration", "The configuration file: show and change it."),
    ("ns", "namespaces", "Namespaces: list, create, describe, change and drop."),
    ("table", "tables", "Tables: list, describe, read, create, register, change and drop."),
    ("maintain", "maintain", "Table maintenance: compact, index and clean up."),
    ("managed", "managed", "Implementation-managed tables, whose versions the catalog holds."),
)
"""Groups: name, module and summary."""

QUICKSTART = """\
import lance
import lance_bridge
import pyarrow as pa

ns = lance_bridge.connect("dir", {{"root": {root!r}}})
schema = pa.schema({{"id": pa.int64(), "title": pa.string(), "vector": pa.list_(pa.float32(), 2)}})
rows = [
    {{"id": 1, "title": "Metropolis", "vector": [0.0, 1.0]}},
    {{"id": 2, "title": "M", "vector": [1.0, 0.0]}},
    {{"id": 3, "title": "Faust", "vector": [1.0, 1.0]}},
]
table = pa.Table.from_pylist(rows, schema)
lance.write_dataset(table, namespace_client=ns, table_id=["films"])

films = lance.dataset(namespace_client=ns, table_id=["films"])
print(films.to_table(columns=["title"], filter="id > 1").to_pylist())
nearest = {{"column": "vector", "q": [0.9, 0.1], "k": 1}}
print(films.to_table(columns=["title", "_distance"], nearest=nearest)["title"].to_pylist())
"""
AFTER_QUICKSTART = """\
The table is in {root}. To use a catalog in place of a directory, change one line:

    lance_bridge.connect("hive", {{"uri": "thrift://metastore:9083"}})
    lance_bridge.connect("glue", {{"region": "eu-central-1", "root": "s3://lake/tables"}})
    lance_bridge.connect("unity", {{"host": "http://unity:8080", "catalog": "lake"}})

and put the database first in the table's identifier: ["sales", "films"]."""

if color_system() is None:
    # With NO_COLOR, rich still prints bold letters in help. Importing rich_utils takes a tenth of a
    # second, and completion does not need it.
    from typer import rich_utils

    rich_utils.COLOR_SYSTEM = None


class ImportedGroup(TyperGroup):
    """A group that imports its module when its commands are first needed."""

    module: ClassVar[str]
    _imported: MutableMapping[str, Any] | None = None

    @property
    def commands(self) -> MutableMapping[str, Any]:
        if self._imported is None:
            group = typer.main.get_group(import_module(self.module).app)
            self._imported = group.commands
            for each in group.commands.values():
                _prepare(each)
        return self._imported

    @commands.setter
    def commands(self, _none: MutableMapping[str, Any]) -> None:
        """Ignore typer's initial value, which has no commands."""


def _prepare(command: Any) -> None:
    """Prepare a command, or a group and those of its commands that are imported already."""
    if not isinstance(command, TyperGroup):
        prepare(command)
        return
    hide_flag_types(command)
    if not isinstance(command, ImportedGroup):
        for each in command.commands.values():
            _prepare(each)


def imported_app(module: str, summary: str) -> typer.Typer:
    """Return the commands in ``app`` of a module, without importing it yet."""
    group = type("Group", (ImportedGroup,), {"module": module})
    return typer.Typer(cls=group, help=summary, no_args_is_help=True)


class ProgramGroup(TyperGroup):
    """All commands: of this package, and of entry points, which are loaded when first used."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        hide_flag_types(self)
        super().format_help(ctx, formatter)

    @cached_property
    def _entry_points(self) -> dict[str, metadata.EntryPoint]:
        return {each.name: each for each in metadata.entry_points(group=ENTRY_POINTS)}

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names, without loading entry points."""
        own = super().list_commands(ctx)
        return own + sorted(self._entry_points.keys() - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if it does not exist or cannot be imported."""
        point = self._entry_points.get(cmd_name)
        if cmd_name not in self.commands and point is not None:
            try:
                self.commands[cmd_name] = _load_command(point)
            except (ImportError, AttributeError) as error:
                logger.warning(
                    "no command '%s': %s cannot be loaded: %s", point.name, point.value, error
                )
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _prepare(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name; suggestions include entry points."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            for each in get_close_matches(args[0], known):
                self.get_command(ctx, each)
        return super().resolve_command(ctx, args)


def _load_command(point: metadata.EntryPoint) -> Any:
    loaded = point.load()
    if isinstance(loaded, typer.Typer):
        command: Any = typer.main.get_group(loaded)
    else:
        app = typer.Typer(add_completion=False)
        app.command(point.name)(loaded)
        command = typer.main.get_command(app)
    command.name = point.name
    return command


# -- commands --------------------------------------------------------------------------------------


app = typer.Typer(
    name="lance-bridge",
    cls=ProgramGroup,
    help="Use Hive, Glue or Unity Catalog as the catalog for your Lance tables.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": HELP_OPTIONS},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _module, _summary in GROUPS:
    app.add_typer(imported_app(f"{__package__}.{_module}", _summary), name=_name)
spark = typer.Typer(help="Spark: paths for its configuration.", no_args_is_help=True)
app.add_typer(spark, name="spark")


def _print_version(*, requested: bool) -> None:
    if requested:
        print_line(f"lance-bridge {metadata.version('lance-bridge')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help=QUIET_HELP)] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help=VERBOSE_HELP)] = False,
) -> None:
    """Use Hive, Glue or Unity Catalog as the catalog for your Lance tables."""
    context.with_resource(log_messages())
    if quiet or verbose:
        set_verbosity(Verbosity.QUIET if quiet else Verbosity.VERBOSE)


@app.command()
def quickstart(
    directory: Annotated[
        Path, typer.Argument(help="Directory for the table; must be new or empty.")
    ] = Path("lance-quickstart"),
) -> None:
    """Write a first table to a directory, query it, and print the code it runs.

    Requires no catalog and no server.

    Example: lance-bridge quickstart
    """
    if not _is_new_or_empty(directory):
        raise usage_error(f"{directory} is not an empty directory: choose another one")
    root = str(directory.absolute())
    program = QUICKSTART.format(root=root)
    print_line(f"Running this program:\n\n{program}\nOutput:\n")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise usage_error(
            f"{directory} cannot be created: {error.strerror}; choose another directory"
        ) from error
    from lance_bridge.errors import translate_lance_errors  # noqa: PLC0415 - takes seconds to import

    with exit_on_error(), translate_lance_errors(f"The table cannot be written to {root}"):
        exec(compile(program, "quickstart", "exec"), {"__name__": "__main__"})
    print_line(f"\n{AFTER_QUICKSTART.format(root=root)}")


def _is_new_or_empty(directory: Path) -> bool:
    try:
        return not directory.exists() or (directory.is_dir() and not any(directory.iterdir()))
    except OSError as error:
        raise usage_error(f"{directory} cannot be read: {error.strerror}") from error


# Options are passed on unchanged, including --help.
@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
def check(
    arguments: Annotated[list[str] | None, typer.Argument(autocompletion=catalog_names)] = None,
) -> None:
    """Run the conformance kit against a Lance namespace, in child namespaces that it removes."""
    from lance_bridge import kit_options  # noqa: PLC0415 - takes seconds to import
    from lance_bridge.extras import require  # noqa: PLC0415 - the same

    program = "lance-bridge check"
    given = kit_options.parse(arguments or [], program)
    with exit_on_error():
        require("testing", "pytest", "hypothesis")
    from lance_bridge.testing import command  # noqa: PLC0415 - pytest may be missing

    raise typer.Exit(command.run(given, program))


@spark.command()
def jar() -> None:
    """Print the path of the jar of the SQL catalog, for `spark.jars`.

    Example: lance-bridge spark jar
    """
    with exit_on_error():
        [point] = metadata.entry_points(group=JARS, name="spark")
        print_line(str(point.load()()))
