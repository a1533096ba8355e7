"""The base class and types that all settings share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

FilePath = Annotated[Path, AfterValidator(Path.expanduser)]


class Settings(BaseModel):
    """Immutable settings. Messages about them repeat no values."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )
