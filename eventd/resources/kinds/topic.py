"""Topic: a topic of records with its configuration, under the field names of the API in camelCase."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from eventd.errors import EventdError
from eventd.resources.kinds.fields import TOPIC_NAME_RULE, Flag, Whole
from eventd.resources.kinds.spec import Spec, wrong
from eventd.text.duration import MILLISECOND, PATTERN, parse_duration
from eventd.text.topic_names import TOPIC_NAME

MOST: Final = 2**64 - 1
_PRIORITY: Final = 2**31


def _read_millis(value: Any) -> Any:
    """Return a written duration in milliseconds; a number, which already is in milliseconds, stays."""
    if not isinstance(value, str):
        return value
    try:
        micros = parse_duration(value)
    except EventdError as error:
        raise wrong(error.message, error.hint) from error
    if micros % MILLISECOND:
        raise wrong("must be a whole number of milliseconds")
    return micros // MILLISECOND


def _check_letters(value: str) -> str:
    if value.strip() and not re.fullmatch(TOPIC_NAME, value):
        raise wrong(TOPIC_NAME_RULE)
    return value.strip()


Count = Annotated[Whole, Field(ge=0, le=MOST)]
Millis = Annotated[
    Whole,
    Field(ge=0, le=MOST),
    BeforeValidator(_read_millis),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^(?:{PATTERN})$"}]}),
]
"""Milliseconds; written as `600000` or `10m`."""

DeadLetterTopic = Annotated[
    str, AfterValidator(_check_letters), WithJsonSchema({"type": "string", "pattern": f"^(?:{TOPIC_NAME})?$"})
]
"""The name of a topic of dead letters; blank becomes empty."""


class TopicSpec(Spec):
    """The spec of a Topic; its name is that of the topic."""

    type: Literal["log", "queue"] = Field(
        default="log", description="Whether its records are read, or claimed as jobs. It cannot be changed."
    )
    ttl_ms: Millis = Field(default=0, description="How long a record is kept; 0: no limit.")
    cap_records: Count = Field(default=0, description="Maximum number of records; 0: no limit.")
    cap_bytes: Count = Field(default=0, description="Maximum bytes of data and meta of the records; 0: no limit.")
    discard: Literal["old", "reject"] = Field(
        default="old", description="Over a cap: whether the oldest records are dropped, or writes refused."
    )
    durable: Flag = Field(default=False, description="The same as durability: fsync, unless durability is written.")
    durability: Literal["ephemeral", "memory", "disk", "fsync"] = Field(
        default="disk", description="When a write is answered, and what survives a crash."
    )
    priority: Annotated[Whole, Field(ge=-_PRIORITY, le=_PRIORITY - 1)] | None = Field(
        default=None, description="The priority of the topic; absent: the automatic one."
    )
    auto_priority: Flag = Field(
        default=True, description="Whether the automatic priority follows reads; false: it is 0."
    )
    auto_create: Flag = Field(
        default=True, description="Kept with the configuration; it takes effect only in that of a write."
    )
    idempotency_window_ms: Millis = Field(default=120_000, description="How long idempotency keys are recognised.")
    dedupe_node: Flag = Field(default=True, description="Whether readers may leave out the records of named nodes.")
    lease_ms: Millis = Field(default=30_000, description="How long a claim of a job lasts, 100 ms to 24 h.")
    claim_jitter_ms: Millis = Field(
        default=0, description="How long claims are collected to share the jobs evenly, at most 5 s."
    )
    max_deliveries: Count = Field(
        default=0, description="How often a job is handed out before it becomes a dead letter; 0: no limit."
    )
    dead_letter: DeadLetterTopic = Field(default="", description="The topic of the dead letters of a queue.")
    leases_durable: Flag = Field(default=False, description="Whether each claim is flushed to disk.")

    @property
    def chosen_durability(self) -> str:
        """Return the durability as written, or else as `durable` means it."""
        return "fsync" if self.durable and "durability" not in self.model_fields_set else self.durability

    def effective(self) -> dict[str, Any]:
        """Return the spec with every default filled in, and equal values of `durable` and `durability`."""
        chosen = self.chosen_durability
        filled = super().effective() | {"durability": chosen, "durable": chosen == "fsync"}
        return {name: value for name, value in filled.items() if value is not None}
