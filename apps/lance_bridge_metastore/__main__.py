"""``python -m lance_bridge_metastore``: one metastore in the foreground, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lance_bridge.exit_codes import MISUSED
from lance_bridge.jvm import JavaNotFoundError

from .releases import RELEASES, EmbeddedError, Release, jars_of, release
from .server import TLS_SWITCH, DirectoryError, Metastore, is_enabled

_POLL_SECONDS = 0.2
_MAX_PORT = 65_535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.fetch_only:
            for found in map(release, options.version or sorted(RELEASES)):
                jars = jars_of(found, java=options.java)
                print(f"Hive Metastore {found.full_version}: {jars}", flush=True)
            return 0
        if len(options.version) > 1:
            parser.error("more than one --version needs --fetch-only")
        if not 0 <= options.port <= _MAX_PORT:
            print(f"--port must be between 0 and {_MAX_PORT}", file=sys.stderr)
            return MISUSED
        return _serve(options)
    except DirectoryError as error:
        print(error, file=sys.stderr)
        return MISUSED
    except (EmbeddedError, JavaNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lance_bridge_metastore",
        description="Run a real Hive Metastore with embedded Derby, until Ctrl-C or SIGTERM.",
    )
    parser.add_argument(
        "--version",
        action="append",
        default=[],
        choices=sorted(RELEASES),
        help="release to run (2.3); may be repeated with --fetch-only",
    )
    parser.add_argument("--port", type=int, default=9083, help="port (9083); 0: any free one")
    parser.add_argument(
        "--directory", type=Path, help="where its state is kept; temporary by default"
    )
    parser.add_argument("--warehouse", help="where databases are created by default, a path or URI")
    parser.add_argument(
        "--classpath",
        action="append",
        default=[],
        help="jar or directory to add, such as a file system's connector; may be repeated",
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="property of hive-site.xml; may be repeated",
    )
    parser.add_argument("--java", help="the Java to run it with")
    parser.add_argument(
        "--fetch-only",
        action="store_true",
        help="fetch the jars of the named versions (or all) into the cache, and exit",
    )
    return parser


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _serve(options: argparse.Namespace) -> int:
    metastore = Metastore(
        options.version[0] if options.version else "2.3",
        options.directory,
        options.port,
        warehouse=options.warehouse,
        extra_classpath=options.classpath,
        settings=dict(options.setting),
        java=options.java,
    )
    _warn(metastore.release, dict(options.setting))
    print(f"Starting Hive Metastore {metastore.release.full_version} ...", flush=True)
    with metastore:
        print(f"{metastore.uri}\nState and log are in {metastore.directory}", flush=True)
        while metastore.is_running:
            time.sleep(_POLL_SECONDS)
        print(f"The metastore ended. Its log ends:\n{metastore.log_tail()}", file=sys.stderr)
    return 1


def _warn(running: Release, settings: Mapping[str, str]) -> None:
    if not running.is_hive_4 and is_enabled(settings, TLS_SWITCH):
        print(
            f"Warning: Hive Metastore {running.version} with TLS listens on every address of this "
            "machine, without authentication unless --setting turns it on: anyone who reaches the "
            "port can read and change its tables. Without TLS it listens on 127.0.0.1 only.",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
