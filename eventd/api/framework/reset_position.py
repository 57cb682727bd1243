"""The parameters with which an operator moves a consumer to another position of the log."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from eventd.api.framework.operations import Params


class ResetPosition(Params):
    """Where to continue: at the oldest stored event, at a time, or after the newest."""

    since: str = Field(
        default="", description="Start at the first event stored at this time or later: RFC 3339, or an age (`15m`)."
    )
    latest: bool = Field(default=False, description="Start after the newest event; the backlog is skipped.")
    dry_run: bool = Field(default=False, description="Only show what would change.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.since and self.latest:
            raise ValueError("since and latest name two positions: leave one out")
        return self
