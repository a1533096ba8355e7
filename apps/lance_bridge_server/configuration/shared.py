"""What all parts of the settings share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

FilePath = Annotated[Path, AfterValidator(Path.expanduser)]


class Settings(BaseModel):
    """Settings that are read once, of which no message repeats a value."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )
