"""What all bodies have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A JSON object read without conversions: "8" is no number. Null is as good as absent where there is a default."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
