"""Which state of a table is meant: by version, tag or branch."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import invalid
from .storage.manifests import MAIN


@dataclass(frozen=True)
class Ref:
    """Which state of a table is meant: a version, a tag, or the latest; of main, or of a branch."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    @classmethod
    def of(
        cls, version: int | None = None, tag: str | None = None, branch: str | None = None
    ) -> Ref:
        """Return what a request names.

        Raises:
            InvalidInputError: (13) a tag together with a version or branch, or a bad version.
        """
        if tag is not None and (branch is not None or version is not None):
            raise invalid("`tag` cannot be used together with `version` or `branch`")
        if version is not None and version < 1:
            raise invalid(f"version must be 1 or more, not {version}")
        return cls(version, tag, None if branch in (None, MAIN) else branch)

    def __str__(self) -> str:
        """Return what a message calls it."""
        if self.tag is not None:
            return f"tag '{self.tag}'"
        of_branch = f" of branch '{self.branch}'" if self.branch else ""
        return f"version {self.version or 'latest'}{of_branch}"


LATEST = Ref()
