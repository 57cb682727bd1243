"""The configuration of a topic of records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from eventd.errors import Invalid
from eventd.store.rows.leases import LEASE_MS

Durability = Literal["ephemeral", "memory", "disk", "fsync"]
Natural = Annotated[int, msgspec.Meta(ge=0, extra_json_schema={"maximum": 2**64 - 1})]
JITTER_MS = 5000
"""The maximum of `claim_jitter_ms`; a larger value is lowered to it."""
PRIORITY = 1000
"""A configured priority outside of -1000 to 1000 counts as the nearer of these limits."""
IDLE_MS = 300_000
"""The time without a read after which the automatic priority is 0."""
HALF_LIFE_MS = 30_000
"""The time without a read in which the automatic priority halves."""


def is_lower(limit: int, before: int) -> bool:
    """Return whether a limit is lower than `before`; 0 is unlimited."""
    return limit > 0 and (not before or limit < before)


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a topic. Durations in milliseconds; 0 as a limit or a time to live means unlimited."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: Natural = 0
    cap_records: Natural = 0
    cap_bytes: Natural = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool = False
    durability: Durability | None = None
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: Natural = 120_000
    dedupe_node: bool = True
    lease_ms: Natural = 30_000
    claim_jitter_ms: Natural = 0
    max_deliveries: Natural = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    def resolved(self) -> TopicConfig:
        """Return the configuration with derived fields set, and `lease_ms` and `claim_jitter_ms` within their bounds.

        `durability` None is derived from `durable`, and then `durable` from `durability`.
        """
        durability = self.durability or ("fsync" if self.durable else "disk")
        return msgspec.structs.replace(
            self,
            durability=durability,
            durable=durability == "fsync",
            lease_ms=max(LEASE_MS[0], min(LEASE_MS[1], self.lease_ms)),
            claim_jitter_ms=min(JITTER_MS, self.claim_jitter_ms),
        )

    @property
    def limited(self) -> bool:
        """Return whether the topic has a limit (of age, records or bytes), by which it removes or refuses records."""
        return bool(self.ttl_ms or self.cap_records or self.cap_bytes)

    def lowered_in(self, after: TopicConfig) -> list[str]:
        """Return the fields by which `after` deletes records that this configuration keeps."""
        limits = ["ttl_ms", *(("cap_records", "cap_bytes") if after.discard == "old" else ())]
        lowered = [name for name in limits if is_lower(getattr(after, name), getattr(self, name))]
        drops = self.discard == "reject" and after.discard == "old" and bool(after.cap_records or after.cap_bytes)
        return [*lowered, *(["discard"] if drops else [])]

    def effective_priority(self, last_read_ms: int | None, now_ms: int) -> int:
        """Return the priority at `now_ms`: the configured one, within -1000 to 1000, or else the automatic one.

        The automatic priority is 500 at a read and halves every `HALF_LIFE_MS`. It is 0 from `IDLE_MS` after the last
        read, for a topic that was never read (`last_read_ms` None), and without `auto_priority`.
        """
        if self.priority is not None:
            return max(-PRIORITY, min(PRIORITY, self.priority))
        idle = None if last_read_ms is None else max(0, now_ms - last_read_ms)
        if not self.auto_priority or idle is None or idle >= IDLE_MS:
            return 0
        warmth: float = 500 * 2.0 ** (-idle / HALF_LIFE_MS)
        return round(warmth)


GROUP_CONFIG = TopicConfig(durability="fsync", auto_create=False).resolved()
"""What readers see as the configuration of a group's topic. Its retention is in the group's resource."""

read_config = lru_cache(maxsize=256)(msgspec.json.Decoder(TopicConfig).decode)


def merged(config: TopicConfig, changes: Mapping[str, Any]) -> TopicConfig:
    """Return the resolved configuration after `changes`, in which None resets a field to its default.

    `durability` None keeps `fsync` unless `durable` is reset, too. Raises `Invalid` for an unknown field or a value
    that is not valid.
    """
    fields: dict[str, Any] = msgspec.to_builtins(config)
    if unknown := [name for name in changes if name not in fields]:
        raise Invalid(f"a topic has no field {unknown[0]!r}", hint=f"its fields are {', '.join(fields)}")
    if "durable" in changes and "durability" not in changes:
        del fields["durability"]  # derived from the other
    kept = {name: value for name, value in fields.items() if name not in changes}
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return msgspec.convert(kept | given, TopicConfig).resolved()
    except msgspec.ValidationError as error:
        raise Invalid(f"the topic's configuration is not valid: {error}") from None
