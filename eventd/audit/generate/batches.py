"""Batches as both ends record them: ids, keys, and the receipt that the receiver signs."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from eventd.audit.generate.flows import Flow
from eventd.audit.generate.log_positions import Journal, by_flow, positions_of
from eventd.audit.generate.pseudo_random import Bytes, Ints, key_of, random_bits, uuids, write_uuids
from eventd.audit.generate.segments import epochs_of
from eventd.audit.generate.world import World

ALGORITHM: Final = "hmac-sha256"
_HEAD: Final = '{"group":"%s","from":"%s","to":"%s","batch":"'
_BODY: Final = (
    '%s","digest":"sha-256=:%s:","epoch":"%s","incarnation":0,"upto":%d,"accepted":%d,"duplicates":%d,"refused":[%s],'
    '"recordedAt":"%sZ"}'
)
_EVIDENCE: Final = (
    '{"status":200,"headers":{"content-type":"application/json","content-digest":"sha-256=:%s:","signature-input":"%s",'
    '"signature":"eventd=:%s:"},"body":"%s","request":":%s:"}'
)
_SIGNED: Final = (
    'eventd=(\\"@status\\" \\"content-type\\" \\"content-digest\\" \\"signature\\";req;key=\\"eventd\\");created=%d;'
    'keyid=\\"%s\\";alg=\\"hmac-sha256\\";tag=\\"eventd-v2-receipt\\"'
)


class Receipt(NamedTuple):
    """The receipt of a peer: `digest` is the SHA-256 of `body` in hex.

    `batch_digest` (base64) is in the place of the batch's SHA-256: pseudo-random, because no batch has a text;
    zeros in an altered receipt.
    """

    body: str
    digest: str
    batch_digest: str


class Batches:
    """The batches of a journal, with their ids and, computed on demand, columns and receipts."""

    def __init__(self, world: World, journal: Journal) -> None:
        self.world, self.journal = world, journal
        self._flows = [(world.flows[uid], places) for uid, places in by_flow(journal)]
        self.ids = np.zeros((len(journal), 36), np.uint8)
        for flow, places in self._flows:
            self.ids[places] = batch_ids(world, flow)[journal.batch[places]]
        names = world.names
        ends = {c.uid: (world.groups[c.group], names[c.sender], names[c.peer]) for c, _ in self._flows}
        self._heads = {uid: _HEAD % of for uid, of in ends.items()}
        self._epochs = [world.epoch(node, epoch_index) for node in range(len(names)) for epoch_index in (0, 1)]

    def __len__(self) -> int:
        return len(self.journal)

    def column(self, of: Callable[[Flow], Any], kind: type = np.int64) -> Any:
        """Return an array, a value for each batch; `of` returns one per batch of a flow, or one for all of them."""
        found: Any = np.zeros(len(self.journal), kind)
        for flow, places in self._flows:
            values = of(flow)
            found[places] = values[self.journal.batch[places]] if isinstance(values, np.ndarray) else values
        return found

    def receipts(self, begin: int, end: int, *, kept: bool) -> list[Receipt | None]:
        """Return the receipts of batches `begin` to `end` - 1, with None for a batch with no event left to send.

        `kept`: as the sender stores them, with the changes of `Flow.altered`; otherwise as the peer gave them.
        """
        world, some = self.world, slice(begin, end)
        ids = self.ids[some].tobytes().decode()
        random = random_bits(key_of(world.settings.seed, "bodies"), self._serials(begin, end)).tobytes()
        recorded = self.column(lambda c: c.recorded + world.skews[c.peer])[some]
        fields = zip(
            self.column(lambda c: c.uid)[some].tolist(),
            self.column(lambda c: 2 * c.sender + epochs_of(world, c.sender, c.sent))[some].tolist(),
            self.column(lambda c: c.mark)[some].tolist(),
            self.column(lambda c: c.accepted)[some].tolist(),
            self.column(lambda c: c.refusals)[some].tolist(),
            np.datetime_as_string(recorded.astype("M8[us]")).tolist(),
            self.column(lambda c: c.empty, np.bool_)[some].tolist(),
            strict=True,
        )
        found: list[Receipt | None] = []
        for at, (uid, epoch, mark, accepted, refusals, time, empty) in enumerate(fields):
            if empty:
                found.append(None)
                continue
            flow = world.flows[uid]
            batch_digest = b64encode(random[32 * at : 32 * at + 32]).decode()
            if kept and self.journal.batch[begin + at] in flow.altered:
                batch_digest = b64encode(bytes(32)).decode()
            name, refused = ids[36 * at : 36 * at + 36], self._refused(flow, begin + at) if refusals else ""
            parts = (name, batch_digest, self._epochs[epoch], mark, accepted, flow.known, refused, time)
            body = self._heads[uid] + _BODY % parts
            found.append(Receipt(body, hashlib.sha256(body.encode()).hexdigest(), batch_digest))
        return found

    def _serials(self, begin: int, end: int) -> Ints:
        """Return an array with four numbers for each batch, unique to the batch and the same at both ends."""
        serial = self.journal.flow[begin:end] << 32 | self.journal.batch[begin:end]
        return (4 * serial[:, None] + np.arange(4)).ravel()

    def _refused(self, flow: Flow, at: int) -> str:
        listed = refused_in(self.world, flow, int(self.journal.batch[at]))
        return ",".join(f'{{"position":{at},"id":"{name}","reason":"{REASON}"}}' for at, name in listed)


REASON: Final = "id_conflict"
"""The reason of refusals: the peer held another event with the same id."""


def evidence(receipt: Receipt, key_id: str, at: int) -> str:
    """Return the JSON that the sender of the batch stores: the peer's answer, with headers and the receipt as body.

    The signature, made at `at` (microseconds), has the form of a real one but is not valid: the keys do not exist.
    """
    signed = _SIGNED % (at // 1_000_000, key_id)
    mark = b64encode(bytes.fromhex(receipt.digest)).decode()
    return _EVIDENCE % (mark, signed, mark, receipt.body.replace('"', '\\"'), receipt.batch_digest)


def batch_ids(world: World, flow: Flow) -> Bytes:
    """Return the ids of a flow's batches as ASCII bytes, [n, 36]."""
    random = random_bits(key_of(world.settings.seed, "batches", flow.uid), np.arange(flow.batches))
    return write_uuids(uuids(flow.sent + world.skews[flow.sender], random))


def key_id(world: World, node: int, at: Ints) -> Ints:
    """Return the index in `key_ids` of the key that a node signs with at each true time.

    Each node rotates its key once, in the middle of the simulated period.
    """
    return 2 * node + (at >= world.settings.start + world.settings.span // 2)


def key_ids(world: World) -> list[str]:
    """Return the names of all keys, two for each node; `key_id` returns indexes of this list."""
    return [f"{name}-2026{letter}" for name in world.names for letter in "ab"]


def refused_in(world: World, flow: Flow, batch: int) -> list[tuple[int, str]]:
    """Return, for each event of a batch that the peer refused, its position in the sender's log and its id."""
    low, high = np.searchsorted(flow.refused, flow.edges[batch : batch + 2])
    numbers = flow.refused[low:high]
    ids = [id_of(world, flow.source, number) for number in numbers.tolist()]
    return list(zip(positions_of(world, flow, numbers).position.tolist(), ids, strict=True))


def id_of(world: World, source: int, number: int) -> str:
    """Return the id of event `number` of the emitter with index `source`."""
    return str(world.emitters[source].events_of(number, number + 1).id[0].tobytes(), "ascii")
