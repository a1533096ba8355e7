"""Makes the README of the package: on an index page, links to files beside it lead nowhere.

They lead to the repository instead, at the tag of the release, if ``[project.urls]`` of
``pyproject.toml`` has its address as ``Source``. Without it links become plain text, and pictures
are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_RELATIVE = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\((?!https?:|mailto:)([^)\s]+)\)")
_RELEASE = re.compile(r"\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?")


class ReadmeHook(MetadataHookInterface):
    """Adds the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Read the README, with its links as an index page needs them."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        text = with_links(text, source, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_links(text: str, source: str, version: str) -> str:
    """Return a README whose links lead to the files of a repository.

    Args:
        source: The address of the repository; empty if it has none, and links become plain text.
        version: That of the package. A release has a tag, ``v1.2.3``; others are read on ``main``.
    """
    tag = f"v{version}" if _RELEASE.fullmatch(version) else "main"

    def link(found: re.Match[str]) -> str:
        mark, text, path = found.groups()
        if not source:
            return "" if mark else text
        path = f"README.md{path}" if path.startswith("#") else path
        return f"{mark}[{text}]({source}/{'raw' if mark else 'blob'}/{tag}/{path})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _RELATIVE.sub(link, part) for part in parts)
