"""The options of the conformance kit's command.

``python -m lance_bridge.testing`` and ``lance-bridge check`` are one command under two names: both
read their arguments here. This module does not need pytest, so ``--help`` works without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lance_namespace.errors import InvalidInputError

from .dotted_names import parts_of
from .registry import catalogs

MODULE = "python -m lance_bridge.testing"


def parse(arguments: Sequence[str] | None, program: str = MODULE) -> argparse.Namespace:
    """Return the parsed arguments; None parses those of the process.

    Raises:
        SystemExit: with 2 and a message on standard error if they are invalid; with 0 after
            ``--help``.
    """
    parser = _parser(program)
    given = parser.parse_args(arguments)
    if given.catalog is None and not given.list_groups:
        parser.error("the following arguments are required: CATALOG")
    return given


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Run the conformance kit against a catalog: what any Lance namespace must do, "
        "in new namespaces, which it removes.",
        epilog="Exit codes: 0 every case passed; 1 the catalog, or the data root, cannot be "
        "used; 2 invalid arguments, or no case selected; 3 a case failed; "
        f"130 Ctrl-C or SIGTERM.\n\nExample: {program} prod -k listings",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "catalog",
        metavar="CATALOG",
        nargs="?",
        help=f"an installed implementation ({', '.join(sorted(catalogs()))}), dir or rest of "
        "pylance, a catalog of the configuration file, or a class path",
    )
    _add_repeatable(parser, "-p", "--property", help="a property of the catalog")
    parser.add_argument(
        "--parent",
        type=_names,
        default=[],
        metavar="A.B",
        help="an existing namespace to work under; default: the root. Where tables lie two levels "
        "deep, as in Unity Catalog, it is the name of a catalog",
    )
    parser.add_argument(
        "--data-root",
        metavar="DIR",
        help="where data of registered tables is written, a path or a URI; "
        "default: a temporary directory",
    )
    _add_repeatable(
        parser,
        "--storage-option",
        help="a storage option for Lance, for the data root and the catalog's tables",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="FEATURE",
        help="a feature that the catalog does not have (a field of Features); may be repeated",
    )
    _add_repeatable(
        parser, "--deviation", metavar="CASE=REASON", help="a case that is known to fail"
    )
    parser.add_argument(
        "-k",
        "--select",
        metavar="EXPR",
        help="run only cases whose name, or whose group's name, matches: pytest's expressions, "
        "such as 'rename or paging'",
    )
    parser.add_argument(
        "--list-groups", action="store_true", help="list the groups of cases, and exit"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="the format of the result on standard output; with json, all else goes to standard "
        "error",
    )
    return parser


def _add_repeatable(
    parser: argparse.ArgumentParser, *names: str, help: str, metavar: str = "KEY=VALUE"
) -> None:
    parser.add_argument(
        *names,
        type=_pair,
        action="append",
        default=[],
        metavar=metavar,
        help=f"{help}; may be repeated",
    )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value


def _names(text: str) -> list[str]:
    try:
        return list(parts_of(text))
    except InvalidInputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
