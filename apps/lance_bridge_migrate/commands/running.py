"""The commands for saved migrations, and how commands run one: sessions of Spark, exit codes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import lance_bridge_migrate as migrations
from lance_bridge.exit_codes import FAILED, FOUND, INTERRUPTED
from lance_bridge.redaction import redact
from lance_bridge_cli.arguments import OutputOption, exit_on_error, parse_key_values
from lance_bridge_cli.output import (
    Output,
    RowsOption,
    RowsOutput,
    message,
    print_list,
    print_result,
    spinner,
)

from .. import Level
from .options import (
    Execution,
    MigrationId,
    Planning,
    Reconnection,
    SourceProperties,
    SparkSettings,
    StateDirectory,
    with_options,
)
from .output import print_plan, print_record, summary

if TYPE_CHECKING:
    from lance_bridge.namespace import LanceBridgeNamespace
    from lance_bridge_migrate import Endpoints, Migration, MigrationType, Record

    from .progress import ProgressBar

# -- Spark -----------------------------------------------------------------------------------------


_IMPLEMENTATION = "spark.sql.catalogImplementation"
_REMOTE = "spark.remote"
_LOG = "spark.log"
_MAX_LOG_BYTES = 10_000_000
_STANDARD_ERROR = 2


@contextmanager
def spark_session(
    namespace: LanceBridgeNamespace | None, settings: SparkSettings, state: str | None
) -> Iterator[tuple[Any, migrations.Address]]:
    """Yield a session, which is stopped after the block, and its address.

    Args:
        namespace: A Hive Metastore whose tables Spark reads unless the settings name another.
        state: The state directory, which contains Spark's log.
    """
    given = parse_key_values(settings.spark_conf, "--spark-conf")
    own = "" if namespace is None else getattr(namespace.connection.config, "uri", "")
    uri = settings.metastore or (own if own.startswith("thrift://") else None)
    if uri is not None and (settings.metastore or not {_IMPLEMENTATION, _REMOTE} & set(given)):
        given |= {_IMPLEMENTATION: "hive", "spark.hadoop.hive.metastore.uris": uri}
    with exit_on_error():
        from ..endpoints import SPARK  # noqa: PLC0415 - takes seconds to import
        from ..spark.session import address_of_session, session_at  # noqa: PLC0415

        with ExitStack() as stack:
            with spark_log(migrations.Migrations(state).directory.parent) as log:
                spark = stack.enter_context(session_at(migrations.Address(name=SPARK), given))
            message(f"Spark's own log is {log}")
            yield spark, address_of_session(spark)


def has_temporary_catalog(spark: Any) -> bool:
    """Return whether the session's own catalog is in memory."""
    return bool(spark.conf.get(_IMPLEMENTATION, "in-memory") == "in-memory")


@contextmanager
def spark_log(state_directory: Path) -> Iterator[Path]:
    """Redirect the standard error of processes that the block starts to a log file.

    Session settings do not suffice: Log4j writes its first lines before they apply, and the JVM
    writes lines itself. The processes stay redirected after the block; this process does not.

    Secrets are redacted line by line. A file that is too large is replaced.

    Raises:
        ServiceUnavailableError: (17) the file cannot be written.
    """
    from ..record import file_errors  # noqa: PLC0415 - takes seconds to import

    path = state_directory / _LOG
    with file_errors(state_directory):
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
            path.unlink()
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    reading, writing = os.pipe()
    thread = threading.Thread(target=_copy, args=(reading, log), name="spark-log", daemon=True)
    thread.start()
    before = os.dup(_STANDARD_ERROR)
    os.dup2(writing, _STANDARD_ERROR)
    os.close(writing)
    try:
        yield path
    finally:
        os.dup2(before, _STANDARD_ERROR)
        os.close(before)


def _copy(reading: int, log: int) -> None:
    """Copy lines, redacted, until the last process that can write to the pipe has ended."""
    with open(reading, errors="replace") as source, open(log, "w") as target:
        for line in source:
            target.write(redact(line))
            target.flush()


# -- runs ------------------------------------------------------------------------------------------


def plan_and_run(
    name: str,
    endpoints: Endpoints,
    options: Mapping[str, Any],
    planning: Planning,
    follows: str | None = None,
) -> None:
    """Plan a migration, save the plan, and print or execute it.

    Args:
        follows: The identifier of the migration that this one continues.

    Exit codes: 0 done, or planned; 1 tables failed, or something was refused; 3 the plan has
    blocked tables, or verification found a difference; 130 Ctrl-C.
    """
    with exit_on_error():
        migration_type = migrations.migration_type(name)
        source, target = endpoints.source_address, endpoints.target_address
        message(f"planning {name}: reading {source} and {target}")
        with spinner(f"plan {name}"):
            plan = migrations.make_plan(migration_type, endpoints, dict(options), follows)
        migration = migrations.Migrations(planning.state).add(plan)
        if planning.execute:
            run(migration_type, endpoints, migration, planning)
            return
    print_plan(plan, planning.output)
    if plan.blocked:
        raise typer.Exit(FOUND)


def run(
    migration_type: MigrationType, endpoints: Endpoints, migration: Migration, execution: Execution
) -> None:
    """Execute or resume a plan, print the record, and exit with the code for its state."""
    # Takes seconds to import.
    from ..run import options_of_last_run  # noqa: PLC0415
    from .progress import log_file, notify_when_done, progress_bar, run_when_done  # noqa: PLC0415

    names = ("parallelism", "verify", "skip_blocked", "stop_on_error")
    given = {name: value for name in names if (value := getattr(execution, name))}
    options = options_of_last_run(migration.record()).model_copy(update=given)
    id = migration.directory.name
    with (
        progress_bar(f"migrate {id}") as bar,
        interruptible(f"lance-bridge migrate resume {id}"),
        log_file(migration.directory) as log,
    ):
        record = migrations.execute(migration_type, endpoints, migration, options, bar)
    if record.counts.get(migrations.State.FAILED) and log.exists():
        message(f"the stack traces of the failures are in {log}")
    print_record(record, execution.output)
    if execution.when_done is not None:
        run_when_done(execution.when_done, record)
    if execution.when_done_url is not None:
        notify_when_done(execution.when_done_url, record)
    exit_by_state(record)


@contextmanager
def reconnected(
    migration: Migration, source: Sequence[str] | None, target: Sequence[str] | None
) -> Iterator[tuple[MigrationType, Endpoints]]:
    """Connect to the endpoints of a saved migration, with additional properties."""
    from ..endpoints import SPARK  # noqa: PLC0415 - takes seconds to import

    plan = migration.plan()
    migration_type = migrations.migration_type(plan.type)
    needs_spark = SPARK in (plan.source.name, plan.target.name)
    state = migration.directory.parent.parent
    with ExitStack() as stack:
        with spark_log(state) if needs_spark else nullcontext():
            one = stack.enter_context(
                migration_type.connect_source(
                    plan.source, parse_key_values(source, "--source-property")
                )
            )
            other = stack.enter_context(
                migration_type.connect_target(plan.target, parse_key_values(target))
            )
        yield migration_type, migrations.Endpoints(one, other, plan.source, plan.target)


@contextmanager
def interruptible(command: str) -> Iterator[None]:
    """On Ctrl-C, print the command that continues, and exit."""
    try:
        yield
    except KeyboardInterrupt:
        message(f"stopped; progress is saved. Continue with: {command}")
        raise typer.Exit(INTERRUPTED) from None


def exit_by_state(record: Record) -> None:
    """Exit with the code for a record's state, unless it is 0."""
    state = migrations.State
    # A complete undo is a success, also of an item that had failed before its first step.
    if record.state in (state.FAILED, state.STARTED, state.UNDOING):
        raise typer.Exit(FAILED)
    if record.state is state.DIFFERS:
        raise typer.Exit(FOUND)


# -- saved migrations ------------------------------------------------------------------------------


saved = typer.Typer()
_PAGE = "report.html"
_COLUMNS = ("migration", "type", "from", "to", "state", "items")
_SECOND = len("20260101-120000")
"""The length of the date and time that identifiers begin with."""


@saved.command()
@with_options
def resume(
    id: MigrationId, *, source_properties: SourceProperties = None, execution: Execution
) -> None:
    """Execute a saved plan, or continue where its last run ended.

    Secrets that are not in the environment or the configuration file must be passed again.

    Example: lance-bridge migrate resume 20260101-120000-register-0a1b2c
    """
    with exit_on_error():
        migration = migrations.Migrations(execution.state).get(id)
        connection = reconnected(migration, source_properties, execution.properties)
        with connection as (migration_type, endpoints):
            run(migration_type, endpoints, migration, execution)


@saved.command("list")
def list_(
    limit: Annotated[
        int | None, Option("--limit", "-n", min=1, help="List only the latest.")
    ] = None,
    state: StateDirectory = None,
    output: RowsOption = RowsOutput.TEXT,
) -> None:
    """List saved migrations, oldest first.

    Example: lance-bridge migrate list
    """
    with exit_on_error():
        kept = migrations.Migrations(state)
        found = sorted((_summarize(kept, id) for id in kept.ids()), key=lambda each: each[0])
    rows = [row for _, row in found]
    print_list(output, _COLUMNS, rows[-(limit or 0) :], "migrations")


def _summarize(kept: migrations.Migrations, id: str) -> tuple[tuple[str, str], dict[str, Any]]:
    """Return the time to sort a migration by, and its row.

    A migration that cannot be read does not hide the others: its error is printed.
    """
    from lance_namespace.errors import LanceNamespaceError  # noqa: PLC0415 - takes long to import

    second = id[:_SECOND]
    try:
        record = kept.get(id).record()
    except LanceNamespaceError as error:
        message(f"{id} cannot be read: {error}")
        return (second, ""), {**dict.fromkeys(_COLUMNS), "migration": id, "state": "cannot be read"}
    return (second, record.plan.created), summary(record)


@saved.command()
def show(id: MigrationId, state: StateDirectory = None, output: OutputOption = Output.TEXT) -> None:
    """Show a plan, or the state of a migration that was run.

    Example: lance-bridge migrate show 20260101-120000-register-0a1b2c
    """
    with exit_on_error():
        record = migrations.Migrations(state).get(id).record()
    if record.state is migrations.State.PLANNED:
        print_plan(record.plan, output)
    else:
        print_record(record, output)


@contextmanager
def _opened(
    id: str, again: Reconnection, doing: str
) -> Iterator[tuple[tuple[MigrationType, Endpoints, Migration], ProgressBar]]:
    """Reconnect to a saved migration, and show the progress of what the block does."""
    from .progress import progress_bar  # noqa: PLC0415 - takes seconds to import

    with exit_on_error():
        migration = migrations.Migrations(again.state).get(id)
        connection = reconnected(migration, again.source_properties, again.properties)
        with connection as (migration_type, endpoints), progress_bar(f"{doing} {id}") as bar:
            yield (migration_type, endpoints, migration), bar


@saved.command()
@with_options
def verify(
    id: MigrationId,
    *,
    level: Annotated[
        Level, Option("--level", "-l", help="Verification level; each includes the previous one.")
    ] = Level.COUNTS,
    again: Reconnection,
) -> None:
    """Compare what a migration made with its source. The exit code is 3 if they differ.

    Example: lance-bridge migrate verify 20260101-120000-register-0a1b2c --level sample
    """
    with _opened(id, again, "verify") as (opened, bar):
        parallelism = again.parallelism or 8
        record = migrations.verify(*opened, level, parallelism=parallelism, progress=bar)
    print_record(record, again.output)
    exit_by_state(record)


@saved.command()
@with_options
def undo(
    id: MigrationId,
    *,
    skip_changed: Annotated[
        bool, Option("--skip-changed", help="Skip items that others have changed since.")
    ] = False,
    again: Reconnection,
) -> None:
    """Undo what a migration did, unless another writer has changed it since. The source stays.

    Example: lance-bridge migrate undo 20260101-120000-register-0a1b2c
    """
    continuing = interruptible(f"lance-bridge migrate undo {id}")
    with _opened(id, again, "undo") as (opened, bar), continuing:
        parallelism = again.parallelism or 8
        record = migrations.undo(
            *opened, skip_changed=skip_changed, parallelism=parallelism, progress=bar
        )
    print_record(record, again.output)
    exit_by_state(record)


@saved.command()
def report(
    id: MigrationId,
    *,
    to: Annotated[
        Path | None,
        Option(
            "--to",
            help="The page, as FILE.html, with JSON beside it. By default in the migration's own "
            "directory.",
        ),
    ] = None,
    state: StateDirectory = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write a report of a migration as a page with plots, and as JSON.

    The page is one file, which loads nothing from elsewhere.

    Example: lance-bridge migrate report 20260101-120000-register-0a1b2c
    """
    with exit_on_error():
        # Takes a second to import, and needs an extra.
        from ..report import report_of  # noqa: PLC0415
        from ..report_page import write  # noqa: PLC0415

        migration = migrations.Migrations(state).get(id)
        made = report_of(migration.record(), str(Path(state).absolute()) if state else None)
        page, data = write(made, to or migration.directory / _PAGE)
    print_result(output, f"{page}\n{data}", made.model_dump(mode="json"))
