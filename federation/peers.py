"""The constants that both sides must agree on: paths, header names, limits, and the status code of every error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

PROTOCOL_V1: Final = "v1"
PROTOCOL_V2: Final = "v2"

SECOND: Final = 1_000_000
"""Microseconds in a second. Times are whole microseconds since 1970, UTC, unless a name says otherwise."""

NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,252}")
GROUP_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
KEY_ID: Final = re.compile(r"[ !#-\[\]-~]{1,128}")

ANY: Final = "*"
"""As the owner of a key: any node. As the sources of a key: any source."""
SHARED_KEY_ID: Final = "shared"
"""The key id that both sides give to a group's single shared secret."""

DEFAULT_WINDOW: Final = 300 * SECOND
"""The default replay window in microseconds."""
MAX_TEXT: Final = 512
"""Maximum characters of an event's id, group, source, type, subject or dedupe key: what fits every database index."""

# --- protocol v2 ------------------------------------------------------------------------------------------------

EVENTS_PATH: Final = "/v2/events"
LINK_PATH: Final = "/v2/link"
VERIFY_PATH: Final = "/v2/verify"
STATUS_PATH: Final = "/v2/status"
HISTORY_PATH: Final = "/v2/history"
BATCH_TYPE: Final = "application/vnd.eventd.batch"
RUNS_TYPE: Final = "application/vnd.eventd.runs"
JSON_TYPE: Final = "application/json"
IDENTITY: Final = "identity"

FROM_HEADER: Final = "Eventd-From"
TO_HEADER: Final = "Eventd-To"
GROUP_HEADER: Final = "Eventd-Group"
BATCH_HEADER: Final = "Eventd-Batch"
RANGE_HEADER: Final = "Eventd-Range"

LABEL: Final = "eventd"
REQUEST_TAG: Final = "eventd-v2"
ANSWER_TAG: Final = "eventd-v2-receipt"

RANGE_WAIT: Final = SECOND
"""How long a receiver holds a batch whose predecessor has not arrived, in microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a receiver accepts. `max_hops`: the most nodes that an event may have come through, the sender included."""

    batch_bytes: int = 8 * 1024 * 1024
    batch_events: int = 10_000
    event_bytes: int = 1024 * 1024
    max_hops: int = 8


STATUS: Final = {
    "malformed": 400,
    "unauthorized": 401,
    "clock_skew": 401,
    "wrong_audience": 403,
    "wrong_group": 403,
    "wrong_sender": 403,
    "wrong_certificate": 403,
    "not_shared": 403,
    "key_changed": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "replayed": 409,
    "range_ahead": 409,
    "batch_conflict": 409,
    "other_history": 409,
    "conflict": 409,
    "forked": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "too_many_requests": 429,
    "internal": 500,
    "unavailable": 503,
    "full": 507,
}
"""The error codes of v2 and their HTTP status."""

REFUSALS: Final = (
    "too_large",
    "not_canonical",
    "invalid",
    "wrong_group",
    "own_source",
    "source_not_allowed",
    "loop",
    "too_many_hops",
    "id_conflict",
)
"""Why one line of a batch is refused while others are accepted; the first that applies."""

# --- protocol v1 ------------------------------------------------------------------------------------------------

V1_EVENTS_PATH: Final = "/v1/events"
V1_STATUS_PATH: Final = "/v1/status"
V1_TIMESTAMP_HEADER: Final = "X-Routerd-Timestamp"
V1_SIGNATURE_HEADER: Final = "X-Routerd-Signature"
V1_MAX_BODY: Final = 1024 * 1024
"""Maximum bytes of a v1 body. A receiver reads no further, so the signature of a longer body cannot match."""
