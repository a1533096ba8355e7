"""The Helm chart of ``deploy/``: its values, and what Helm makes of them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from commands import run_command

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "lance-bridge"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
PAGE = REPOSITORY / "docs" / "gateway.md"
HELM = REPOSITORY / ".cache" / "helm" / "helm"
"""`make helm` builds it."""


def load(path: Path) -> Any:
    """Return the content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def values_of_page() -> str:
    """Return the values that `docs/gateway.md` shows."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## On Kubernetes\n")[2]
    return section.partition("```yaml\n")[2].partition("```")[0]


def merged(base: Any, other: Any) -> Any:
    """Return values as Helm merges them: mappings by their keys, everything else as a whole."""
    if not isinstance(base, Mapping) or not isinstance(other, Mapping):
        return other
    return {**base, **{key: merged(base.get(key), value) for key, value in other.items()}}


def helm(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run Helm, with a home of its own that is never written."""
    return run_command(HELM, *arguments, code=code, cwd=CHART.parent)


def render(values: Path, *options: str) -> list[dict[str, Any]]:
    """Return the objects of a release."""
    done = helm("template", "gw", CHART.name, "--namespace", "data", "-f", values, *options)
    return [each for each in yaml.safe_load_all(done.stdout) if each]
