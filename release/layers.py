"""Runs import-linter on the packages that there are, so that no list has to name a new one.

In ``[tool.importlinter]`` of ``pyproject.toml``, ``adapters/*`` stands for the packages of that
folder. import-linter has no patterns for whole packages, so this writes the file that it reads.
"""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).parents[1]


def packages(pattern: str) -> list[str]:
    """Return the packages of a folder, such as ``adapters/*``, or a name as it is."""
    if not pattern.endswith("/*"):
        return [pattern]
    return sorted(each.parent.name for each in REPOSITORY.glob(f"{pattern}/__init__.py"))


def settings(file: Path = REPOSITORY / "pyproject.toml") -> dict[str, Any]:
    """Return import-linter's settings, with packages in place of patterns.

    Raises:
        ValueError: a package is in no layer, so that nothing would hold for its imports.
    """
    found: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))["tool"]["importlinter"]
    roots = [name for each in found["root_packages"] for name in packages(each)]
    contract = found["contracts"][0]
    layers = [
        [name for each in layer.split(" | ") for name in packages(each)]
        for layer in contract["layers"]
    ]
    placed = {name for layer in layers for name in layer}
    if missing := sorted(set(roots) - placed):
        raise ValueError(f"{', '.join(missing)}: in no layer of '{contract['name']}'")
    contract["layers"] = [" | ".join(layer) for layer in layers]
    for each in found["contracts"]:
        if "ancestors" in each:
            each["ancestors"] = [name for part in each["ancestors"] for name in packages(part)]
    return {**found, "root_packages": roots}


def main() -> int:
    """Check the contracts, and return the exit code."""
    found = settings()
    contracts = found.pop("contracts")
    written = ConfigParser()
    written["importlinter"] = _texts(found)
    for number, contract in enumerate(contracts):
        written[f"importlinter:contract:{number}"] = _texts(contract)
    with TemporaryDirectory() as directory:
        file = Path(directory, "importlinter.ini")
        with file.open("w", encoding="utf-8") as opened:
            written.write(opened)
        program = str(Path(sys.executable).with_name("lint-imports"))
        command = [program, "--no-logo", "--no-cache", "--config", str(file)]
        return subprocess.run(command, check=False, cwd=REPOSITORY).returncode


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    return {
        key: "\n".join(value) if isinstance(value, list) else str(value)
        for key, value in fields.items()
    }


if __name__ == "__main__":
    sys.exit(main())
