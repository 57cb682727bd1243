"""Checks the digests of events: in every row the fingerprint, and where a row has the payload, its whole content.

The digest of an event is that of its canonical form, which is made again from the columns of the row.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from eventd.audit.arrays.alterations import hexadecimal
from eventd.audit.arrays.columns import Columns, Mask, Numbers
from eventd.audit.arrays.row_hash import digest_words, ids_hash
from eventd.audit.report.findings import (
    OTHER_DIGEST,
    OTHER_FINGERPRINT,
    Discrepancy,
    DiscrepancyKey,
    Evidence,
    Kind,
)
from eventd.lake.manifest import Int64, Number, Time
from federation.event import ZERO_TIME, written

if TYPE_CHECKING:
    import pyarrow as pa

DIGEST_COLUMNS: Final = ("seq", "payload", "dedupe_key")
"""The columns that the check reads besides those of the cells."""
MOST_ALTERED: Final = 1_000
"""Maximum number of altered rows of a segment that are named. The results of all segments are in memory at once, and in
the state of the audit, and all rows of a lake may be altered."""
_SHARES: Final = 10_000
"""The check can be restricted to this fraction of all events: to a hundredth of a percent."""
_SPECIAL: Final = r'["\\]|[^ -~]'
"""A pattern for texts that JSON may write in another way."""


class AlteredRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of `events` that does not match its digest or fingerprint: why, and the event as the row names it."""

    group: str
    source: str
    id: str
    seq: Number
    event_at: Time
    fingerprint: Int64
    computed: Int64
    reason: str


class AlteredCount(msgspec.Struct, array_like=True):
    """The number of altered rows of a group and source that are counted only, with one reason."""

    group: str
    source: str
    reason: str
    rows: Number


class DigestResult(msgspec.Struct, array_like=True):
    """The result of the check of one segment: how many contents were compared with digests, and the altered rows.

    `altered` has the first `MOST_ALTERED`, `more` counts the others.
    """

    checked: Number = 0
    altered: list[AlteredRow] = []
    more: list[AlteredCount] = []


def check_digests(table: Columns, percent: float) -> DigestResult:
    """Check the rows of a segment of `events`: all fingerprints, and the contents of a share of those with payloads.

    The share is selected by the ids of the events, so it has the same events at every node.
    """
    if not table.rows:
        return DigestResult()
    begins = digest_words(table.texts("digest"))[:, 0].byteswap()
    wrong = begins != table.numbers("fingerprint")
    places = _selected(table, percent)
    computed = _digests(table, places)
    stored = table.taken("digest", places).to_pylist()
    # The first of both kinds; among them are the first of all.
    altered = {int(row): (int(begins[row]), OTHER_FINGERPRINT) for row in np.flatnonzero(wrong)[:MOST_ALTERED]}
    other = np.zeros(table.rows, bool)
    for row, digest, made in zip(places.tolist(), stored, computed, strict=True):
        if digest != made:
            other[row] = True
            if len(altered) < 2 * MOST_ALTERED or row in altered:
                altered[row] = (int.from_bytes(made[:8], "big", signed=True), OTHER_DIGEST)
    found = np.flatnonzero(wrong | other)
    named = {int(row): altered[int(row)] for row in found[:MOST_ALTERED]}
    return DigestResult(len(places), list(_rows(table, named)), list(_counts(table, found[MOST_ALTERED:], other)))


def _selected(table: Columns, percent: float) -> Numbers:
    """Return the indexes of the rows whose content is to be compared with the digest."""
    from pyarrow import compute

    payload, key = table.texts("payload"), table.texts("dedupe_key")
    # An empty key: the segment is of a version that did not record it.
    if not percent or payload.null_count == len(payload):
        return np.zeros(0, np.int64)
    known: Mask = ~payload.is_null().to_numpy(zero_copy_only=False)
    known &= compute.not_equal(key, "").fill_null(True).to_numpy(zero_copy_only=False)
    if percent < 100:
        share = ids_hash(table).view(np.uint64) % np.uint64(_SHARES)
        known &= share < np.uint64(percent * _SHARES / 100)
    return np.flatnonzero(known)


def _digests(table: Columns, places: Numbers) -> Iterator[bytes]:
    """Yield the digest of the content of each row at these indexes."""
    if not len(places):
        return
    for text in _canonical(table, places).to_pylist():
        yield hashlib.sha256(text).digest()


def _canonical(table: Columns, places: Numbers) -> pa.Array:
    """Return the canonical forms of the events in the rows at these indexes, as binary values."""
    import pyarrow as pa
    from pyarrow import compute

    def column(name: str) -> Any:
        taken = table.taken(name, places)
        return taken.cast(pa.string()) if pa.types.is_dictionary(taken.type) else taken

    ids, payload = column("id"), column("payload")
    parts = [
        *('{"id":', _quoted(ids), ',"group":', _quoted(column("group"))),
        *(_optional("sourceNode", column("source")), ',"type":', _quoted(column("type"))),
        *(_optional("subject", column("subject")), ',"dedupeKey":'),
        *(_quoted(compute.coalesce(column("dedupe_key"), ids)),),
        compute.if_else(compute.equal(payload, "{}"), "", compute.binary_join_element_wise(',"payload":', payload, "")),
        *(',"observedAt":"', _times(column("event_at")), '","expiresAt":"', _times(column("expires_at")), '"}'),
    ]
    return compute.binary_join_element_wise(*parts, "").cast(pa.binary())


def _optional(name: str, texts: Any) -> Any:
    """Return a member of the event for each text; nothing for an empty one."""
    from pyarrow import compute

    member = compute.binary_join_element_wise(f',"{name}":', _quoted(texts), "")
    return compute.if_else(compute.equal(texts, ""), "", member)


def _quoted(texts: Any) -> Any:
    """Return the texts as JSON strings, as a canonical event has them."""
    import pyarrow as pa
    from pyarrow import compute

    special = compute.match_substring_regex(texts, _SPECIAL)
    if compute.any(special).as_py():
        return pa.array([written(text) for text in texts.to_pylist()], pa.string())
    return compute.binary_join_element_wise('"', texts, '"', "")


def _times(times: Any) -> Any:
    """Return times as a canonical event has them, null as the zero time."""
    from pyarrow import compute

    text = compute.replace_substring(compute.strftime(times, "%Y-%m-%dT%H:%M:%S"), ".000000", "")
    return compute.binary_join_element_wise(text, "Z", "").fill_null(ZERO_TIME)


def _rows(table: Columns, altered: Mapping[int, tuple[int, str]]) -> Iterator[AlteredRow]:
    places = np.array(sorted(altered), np.int64)
    columns = {name: table.taken(name, places).to_pylist() for name in ("group", "source", "id")}
    columns |= {name: table.numbers(name)[places].tolist() for name in ("seq", "event_at", "fingerprint")}
    for at, row in enumerate(places.tolist()):
        computed, reason = altered[row]
        known = {name: values[at] for name, values in columns.items()}
        yield AlteredRow(**known, computed=computed, reason=reason)


def _counts(table: Columns, places: Numbers, other: Mask) -> Iterator[AlteredCount]:
    """Yield how many of the rows at these indexes have each group, source and reason; `other`: with another digest."""
    if not len(places):
        return
    group, source = table.words("group"), table.words("source")
    keys = np.stack([group.codes[places], source.codes[places], other[places]], axis=1)
    found, counts = np.unique(keys, axis=0, return_counts=True)
    for (at, by, is_other), n in zip(found.tolist(), counts.tolist(), strict=True):
        reason = OTHER_DIGEST if is_other else OTHER_FINGERPRINT
        yield AlteredCount(group.values[at], source.values[by], reason, n)


def unnamed_alterations(
    results: Sequence[tuple[str, DigestResult]],
    counted: Mapping[DiscrepancyKey, int],
    compared: Sequence[Discrepancy],
) -> Counter[DiscrepancyKey]:
    """Return how many altered rows this check has only counted, less those that the comparison of rows reports
    already.

    `counted`: the discrepancies that the comparison has only counted, `compared` those that it names. It is not known
    which rows the check has counted, so for each pair, as many of them as the comparison reports are taken to be the
    same.
    """
    found: Counter[DiscrepancyKey] = Counter()
    for node, one in ((node, one) for node, result in results for one in result.more):
        peer = "" if node == one.source else node
        found[DiscrepancyKey(Kind.ALTERED, one.group, one.source, peer, one.reason)] += one.rows
    same: Counter[tuple[str, ...]] = Counter()
    for key, n in counted.items():
        if key.kind is Kind.ALTERED:
            same[key.group, key.source, key.peer] += n
    if found:
        same += _named_by_comparison_only(results, compared)
    for key in sorted(found):
        # The rows of a source differ from those of each of its peers.
        pairs = [pair for pair in same if pair[:2] == key[1:3] and key.peer in (pair[2], "")]
        known = min(found[key], max((same[pair] for pair in pairs), default=0))
        found[key] -= known
        same.subtract(dict.fromkeys(pairs, known))
    return +found


def _named_by_comparison_only(
    results: Iterable[tuple[str, DigestResult]], compared: Sequence[Discrepancy]
) -> Counter[tuple[str, ...]]:
    """Return how many altered events the comparison of rows names and the check does not, by group, source and peer."""
    named = {(node, row.group, row.source, row.id) for node, result in results for row in result.altered}
    prints = {(node, hexadecimal(row.fingerprint)) for node, result in results for row in result.altered}
    return Counter(
        (one.group, one.source, one.peer)
        for one in compared
        if one.kind is Kind.ALTERED
        and not named & {(node, one.group, one.source, one.id) for node in (one.source, one.peer)}
        and not prints & {(one.peer, *one.evidence.fingerprints[-1:])}
    )


def digest_discrepancies(
    results: Iterable[tuple[str, DigestResult]], compared: Sequence[Discrepancy]
) -> Iterator[Discrepancy]:
    """Yield a discrepancy for each altered row, with the node that keeps it as the peer; empty for the source's own.

    `results`: those of each segment, with its node. `compared`: discrepancies from the comparison of rows, which report
    some of these events already.
    """
    known: set[tuple[str, ...]] = set()
    for one in compared:
        if one.kind is Kind.ALTERED:
            known |= {(one.group, one.source, peer, one.id) for peer in (one.peer, "")}
            # The row of an event that was renamed has another id, but the fingerprint of the event.
            known |= {(one.peer, *one.evidence.fingerprints[-1:])}
    for node, row in ((node, row) for node, result in results for row in result.altered):
        peer = "" if node == row.source else node
        names = (hexadecimal(row.fingerprint), hexadecimal(row.computed))
        if known & {(row.group, row.source, peer, row.id), (node, names[0])}:
            continue
        evidence = Evidence(
            at=row.event_at,
            fingerprints=names[:1],
            values=(f"fingerprint: {names[0]} in the row of {node}, {names[1]} by its content",),
        )
        seq = row.seq if not peer else 0
        yield Discrepancy(Kind.ALTERED, row.group, row.source, peer, seq, row.id, row.reason, evidence)
