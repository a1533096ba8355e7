"""Reads policies from files. Each is parsed separately, so that problems name its file and line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cedarpy

SUFFIX = ".cedar"

_TOKEN = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|;|[^\s;/"]+|[/"]', re.DOTALL)
_PREFIX = re.compile(r"^for policy `[^`]*`, ")


@dataclass(frozen=True)
class Policy:
    """One policy of a file."""

    id: str
    """Its ``@id`` annotation, or the file's name and line."""
    file: Path
    line: str
    """The line, with the column if that is not the first: ``3:10``."""
    content: Mapping[str, Any]
    """The policy in Cedar's JSON format."""

    @property
    def place(self) -> str:
        """The file and line, for messages."""
        return f"{self.file}, line {self.line}"


class PolicyError(Exception):
    """Policies cannot be used. The message has one line for each problem."""


def policy_files(path: Path) -> list[Path]:
    """Return the file, or the policy files in the directory, sorted by name.

    Raises:
        PolicyError: The directory has none, or cannot be read.
    """
    try:
        if not path.is_dir():
            return [path]
        found = sorted(each for each in path.iterdir() if each.suffix == SUFFIX)
    except OSError as error:
        raise PolicyError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise PolicyError(f"{path} has no file *{SUFFIX}")
    return found


def read_policies(path: Path, schema: cedarpy.Schema) -> list[Policy]:
    """Return the policies of a file or directory.

    Raises:
        PolicyError: A file cannot be read, or a policy is wrong. The message has all problems.
    """
    policies: dict[str, Policy] = {}
    problems: list[str] = []
    for file in policy_files(path):
        for line, text in _statements(_read(file)):
            found = _parse(file, line, text, schema)
            if isinstance(found, list):
                problems += found
            elif found.id in policies:
                there = policies[found.id].place
                problems.append(f"{found.place} (policy '{found.id}'): {there} has the same @id")
            else:
                policies[found.id] = found
    if problems:
        raise PolicyError("\n".join(problems))
    return list(policies.values())


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{file} cannot be read: {error}") from error


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """Yield the position and text of each policy. Policies end with semicolons.

    The position is the line, with the column if that is not the first.
    """
    start: int | None = None
    for token in _TOKEN.finditer(text):
        if token[0].startswith("//"):
            continue
        if start is None:
            start = token.start()
        if token[0] == ";":
            yield _place(text, start), text[start : token.end()]
            start = None
    if start is not None:
        yield _place(text, start), text[start:]


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return str(line) if column == 1 else f"{line}:{column}"


def _parse(file: Path, line: str, text: str, schema: cedarpy.Schema) -> Policy | list[str]:
    """Return a policy, or its problems."""
    place = f"{file}, line {line}"
    try:
        parsed = json.loads(cedarpy.policies_to_json_str(text))
    except ValueError as error:
        return [f"{place}: {error}"]
    if parsed["templates"]:
        return [
            f"{place}: a policy with ?principal or ?resource is a template, and grants nothing by "
            "itself"
        ]
    (content,) = parsed["staticPolicies"].values()
    given = content.get("annotations", {}).get("id")
    result = cedarpy.validate_policies(text, schema)
    if not result:
        shown = f" (policy '{given}')" if given else ""
        return [f"{place}{shown}: {_PREFIX.sub('', each.error)}" for each in result.errors]
    return Policy(given or f"{file.name}:{line}", file, line, content)
