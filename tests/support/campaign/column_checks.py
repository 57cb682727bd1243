"""Which check finds a changed value in a row, column by column of each ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.campaign.field_checks import FieldTable, found, unchecked

_OWNER_TEST: Final = "integration/lake/test_borders.py::test_rows_of_another_node_or_epoch_are_not_counted"
_NUMBERS_TEST: Final = "unit/lake/test_segment_checks.py::test_rows_have_ascending_numbers_of_the_range"
_TREES_TEST: Final = "integration/audit/engine/test_trees_audited.py::test_each_damage_is_found_where_it_is"
_TREE_ROWS_TEST: Final = "unit/audit/verdicts/test_tree_checks.py::test_rows_of_another_tree_or_node_are_refused"
_OWNER: Final = {
    "node": found("corrupt", "the node of its segment", _OWNER_TEST),
    "epoch": found("corrupt", "the epoch of its segment", _OWNER_TEST),
}
_BY_HASH: Final = "the sums of both ends of a link, which have a hash of it"
_BY_BATCH: Final = "the receipt under the number of its batch"
_BY_BODY: Final = "the body of the receipt, which the peer has signed"
_BY_COPY: Final = "the body of the answer"
_BY_TEXT: Final = "nothing: it describes the row, and no other row has it"

_EVENTS: Final = {
    "number": found("corrupt", "the position of its row, and the range of its segment"),
    **_OWNER,
    "group": found("erased", "the hole in the seqs of its group"),
    "position": found("corrupt", "the number of its row"),
    "seq": found("erased", "the hole in the seqs of its group"),
    "id": found("altered", f"its digest; {_BY_HASH}", "event-renamed-at-peer"),
    "source": found("altered", "its digest; the ledgers of the other nodes"),
    "type": found("altered", f"its digest; {_BY_HASH}", "type-edited-at-source"),
    "subject": found("altered", f"its digest; {_BY_HASH}", "subject-edited-at-peer"),
    "own": found("forged", "the ledger of its source, and those of the peers that have it"),
    "path": unchecked("nothing: through which nodes an event came is not part of its digest, and differs at each node"),
    "event_at": found("altered", f"its digest; {_BY_HASH}", "time-edited-at-peer"),
    "expires_at": found("altered", f"its digest; {_BY_HASH}", "expiry-added-at-source"),
    "recorded_at": unchecked("only the time of the state, which is later: each node records an event at another time"),
    "bytes": found("altered", _BY_HASH),
    "fingerprint": found("altered", f"its digest, of which it is the beginning; {_BY_HASH}", "fingerprint-edited"),
    "digest": found("altered", f"its fingerprint; the payload, where the lake has it; {_BY_HASH}"),
    "payload": found("altered", "its digest", "payload-edited-at-peer"),
    "dedupe_key": found("altered", "its digest, where the lake has the payload"),
    **dict.fromkeys(("tree", "leaf"), found("rewritten", "the roots of checkpoints", _TREES_TEST)),
}
_DELIVERIES: Final = {
    "number": found("erased", _BY_BATCH),
    **_OWNER,
    "group": found("altered", f"{_BY_BATCH}; {_BY_HASH}"),
    "peer": found("disagreement", f"{_BY_BATCH}; the ledger of the peer"),
    "position": unchecked("nothing: an event is found by its id and its digest"),
    "seq": unchecked("nothing: it only names the events of an erased row"),
    "id": found("altered", _BY_HASH),
    "source": found("disagreement", "the sums of events and deliveries, which are made for each source"),
    "type": found("altered", _BY_HASH),
    "attempts": found("altered", _BY_BATCH),
    "outcome": found("disagreement", "the counts of the receipt; the ledger of the peer", "delivered-called-expired"),
    "status": found("altered", _BY_BATCH),
    "error": unchecked("nothing: it is the reason of a refusal, in the words of the node"),
    "protocol": found("altered", _BY_BATCH),
    "key_id": found("altered", _BY_BATCH),
    "batch_id": found("altered", _BY_BATCH, "delivery-of-another-receipt"),
    "repair": found("altered", _BY_BATCH),
    "bytes": found("altered", _BY_HASH),
    "event_at": found("altered", _BY_HASH),
    "recorded_at": unchecked("only the time of the state, which is later: it shows how long an event waited"),
    "attempt_at": found("altered", _BY_BATCH),
    "done_at": found("altered", _BY_BATCH),
    "peer_recorded_at": found("altered", _BY_BATCH, "arrival-edited"),
    "receipt_digest": found("altered", f"{_BY_BATCH}, by the first 64 bits", "delivery-of-another-receipt"),
    "fingerprint": found("altered", _BY_HASH, "delivery-fingerprint-edited"),
    "selector_version": found("altered", _BY_BATCH),
}
_RECEIPTS: Final = {
    "number": found("erased", "the deliveries under the number of the batch"),
    **_OWNER,
    "group": found("forged", _BY_BODY),
    "peer": found("forged", _BY_BODY),
    "batch_id": found("forged", _BY_BODY),
    "link_epoch": found("forged", _BY_BODY),
    "incarnation": found("forged", _BY_BODY),
    "after": found("disagreement", "the peer's ledger of batches"),
    "upto": found("forged", _BY_BODY, "receipt-range-edited"),
    "repair": found("disagreement", "the peer's ledger of batches; the deliveries of the batch"),
    "sent": found("forged", _BY_BODY),
    "accepted": found("forged", _BY_BODY, "receipt-counts-edited"),
    "duplicates": found("forged", _BY_BODY),
    "refused": found("forged", _BY_BODY),
    "peer_upto": found("forged", _BY_BODY),
    "selector_version": found("altered", "the deliveries of the batch", "selection-narrowed-later"),
    "selection": found("altered", "the texts of its version in the state and in other rows", "selection-narrowed"),
    "attempts": found("altered", "the deliveries of the batch"),
    "sent_at": found("altered", "the deliveries of the batch"),
    "acked_at": found("altered", "the deliveries of the batch"),
    "peer_recorded_at": found("forged", _BY_BODY),
    "status": found("altered", "the deliveries of the batch"),
    "protocol": found("altered", "the deliveries of the batch"),
    "key_id": found("altered", "the deliveries of the batch"),
    "receipt_key_id": found("forged", "the headers of the receipt"),
    "receipt_alg": found("forged", "the headers of the receipt"),
    "receipt_digest": found("forged", _BY_BODY),
    "receipt": found("forged", "its digest and its signature", "receipt-body-edited"),
    "exceptions": unchecked("nothing: the deliveries say the same, event by event, and are compared"),
}
_INBOUND: Final = {
    "number": found("corrupt", "the order of the rows, and the range of its segment"),
    **_OWNER,
    "group": found("forged", _BY_COPY),
    "peer": found("forged", _BY_COPY),
    "batch_id": found("forged", _BY_COPY),
    "link_epoch": found("forged", _BY_COPY),
    "incarnation": found("forged", _BY_COPY),
    "after": found("disagreement", "the receipt of the sender"),
    "upto": found("forged", _BY_COPY),
    "repair": found("disagreement", "the receipt of the sender"),
    "accepted": found("forged", _BY_COPY),
    "duplicates": found("forged", _BY_COPY),
    "refused": found("forged", _BY_COPY),
    "key_id": unchecked("nothing: a batch that is sent again may be signed with another key than the receiver noted"),
    "body_digest": found("forged", _BY_COPY),
    "recorded_at": found("forged", _BY_COPY),
    "receipt": found("forged", "its digest; the receipt of the sender", "inbound-receipt-edited"),
    "receipt_digest": found("forged", _BY_COPY),
}
_OF_HOLE: Final = "the hole in the seqs of events, which the row no longer explains"
_GAPS: Final = {
    "number": found("corrupt", "the range of its segment; within it, nothing rests on it", _NUMBERS_TEST),
    **_OWNER,
    "group": found("erased", _OF_HOLE),
    "peer": unchecked("nothing: it names the sender that reported the gap"),
    "gap_epoch": found("erased", _OF_HOLE),
    "after": found("erased", _OF_HOLE),
    "upto": found("erased", _OF_HOLE),
    "reason": found("corrupt", "the reasons that nodes give", "events-called-lost"),
    "recorded_at": unchecked("only the time of the state, which is later"),
}
_REFUSALS: Final = {
    "number": found("corrupt", "the range of its segment; within it, nothing rests on it", _NUMBERS_TEST),
    **_OWNER,
    **dict.fromkeys(
        ("group", "peer", "key_id", "reason", "count", "first_at", "last_at"),
        unchecked("nothing: no other node knows which requests this one refused"),
    ),
}
_HISTORY: Final = {
    "number": found("corrupt", "the range of its segment; within it, nothing rests on it", _NUMBERS_TEST),
    **_OWNER,
    **dict.fromkeys(("group", "kind", "tree"), found("corrupt", "the note", _TREE_ROWS_TEST)),
    **dict.fromkeys(("level", "first"), found("rewritten", "the hashes of the leaves below", _TREES_TEST)),
    "size": unchecked("nothing: the note states it"),
    "position": unchecked("nothing: it only shows where to look first"),
    "content": found("rewritten", "the signature of the note; the hashes of the leaves below", _TREES_TEST),
    "recorded_at": unchecked("nothing: the report shows it"),
}
LEDGERS: Final[Mapping[str, FieldTable]] = {
    "events": FieldTable("Rows of events", _EVENTS),
    "deliveries": FieldTable("Rows of deliveries", _DELIVERIES),
    "receipts": FieldTable("Rows of receipts", _RECEIPTS),
    "inbound": FieldTable("Rows of inbound", _INBOUND),
    "gaps": FieldTable("Rows of gaps", _GAPS),
    "refusals": FieldTable("Rows of refusals", _REFUSALS),
    "history": FieldTable("Rows of history", _HISTORY),
}
"""The checks of the columns of each ledger, in their order."""
