"""Batches as both ends write them down: ids, keys, ranges, and the receipt that one signs and the other keeps."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from eventd.audit.generate.courses import Course
from eventd.audit.generate.mixing import Bytes, Ints, chance, key_of, uuids, write_uuids
from eventd.audit.generate.numbering import Sheet, by_course, places_of
from eventd.audit.generate.segments import turns_of
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
    """What the peer answered: its text, what stands for that, and the digest of the batch it is about."""

    body: str
    digest: str
    content: str


class Batches:
    """The batches of a sheet, column by column."""

    def __init__(self, world: World, sheet: Sheet) -> None:
        self.world, self.sheet = world, sheet
        self._courses = [(world.courses[uid], places) for uid, places in by_course(sheet)]
        self.ids = np.zeros((len(sheet), 36), np.uint8)
        for course, places in self._courses:
            self.ids[places] = batch_ids(world, course)[sheet.batch[places]]
        names = world.names
        ends = {c.uid: (world.groups[c.group], names[c.sender], names[c.peer]) for c, _ in self._courses}
        self._heads = {uid: _HEAD % of for uid, of in ends.items()}
        self._epochs = [world.epoch(node, turn) for node in range(len(names)) for turn in (0, 1)]

    def __len__(self) -> int:
        return len(self.sheet)

    def column(self, of: Callable[[Course], Any], kind: type = np.int64) -> Any:
        """A value of each batch; `of` gives those of a course, or one for all its batches."""
        found: Any = np.zeros(len(self.sheet), kind)
        for course, places in self._courses:
            values = of(course)
            found[places] = values[self.sheet.batch[places]] if isinstance(values, np.ndarray) else values
        return found

    def receipts(self, begin: int, end: int, *, kept: bool) -> list[Receipt | None]:
        """The receipts of some batches; None where nothing was sent. `kept`: as who sent shows them."""
        world, some = self.world, slice(begin, end)
        ids = self.ids[some].tobytes().decode()
        random = chance(key_of(world.settings.seed, "bodies"), self._serials(begin, end)).tobytes()
        recorded = self.column(lambda c: c.recorded + world.skews[c.peer])[some]
        facts = zip(
            self.column(lambda c: c.uid)[some].tolist(),
            self.column(lambda c: 2 * c.sender + turns_of(world, c.sender, c.sent))[some].tolist(),
            self.column(lambda c: c.mark)[some].tolist(),
            self.column(lambda c: c.accepted)[some].tolist(),
            self.column(lambda c: c.refusals)[some].tolist(),
            np.datetime_as_string(recorded.astype("M8[us]")).tolist(),
            self.column(lambda c: c.moot, np.bool_)[some].tolist(),
            strict=True,
        )
        found: list[Receipt | None] = []
        for at, (uid, epoch, mark, accepted, refusals, time, moot) in enumerate(facts):
            if moot:
                found.append(None)
                continue
            course = world.courses[uid]
            content = b64encode(random[32 * at : 32 * at + 32]).decode()
            if kept and self.sheet.batch[begin + at] in course.altered:
                content = b64encode(bytes(32)).decode()
            name, refused = ids[36 * at : 36 * at + 36], self._refused(course, begin + at) if refusals else ""
            parts = (name, content, self._epochs[epoch], mark, accepted, course.known, refused, time)
            body = self._heads[uid] + _BODY % parts
            found.append(Receipt(body, hashlib.sha256(body.encode()).hexdigest(), content))
        return found

    def _serials(self, begin: int, end: int) -> Ints:
        """Four numbers of each batch that no other batch has, and that are the same at both ends."""
        serial = self.sheet.course[begin:end] << 32 | self.sheet.batch[begin:end]
        return (4 * serial[:, None] + np.arange(4)).ravel()

    def _refused(self, course: Course, at: int) -> str:
        listed = refused_in(self.world, course, int(self.sheet.batch[at]))
        return ",".join(f'{{"position":{at},"id":"{name}","reason":"{REASON}"}}' for at, name in listed)


REASON: Final = "id_conflict"
"""Why a peer refused what it refused: it knew the id of another fact."""


def evidence(receipt: Receipt, key_id: str, at: int) -> str:
    """A receipt as its sender keeps it, in the form of one that was signed at a time in microseconds.

    It reads as the real thing, and would not pass a check: nobody holds the keys of a federation that never was.
    """
    signed = _SIGNED % (at // 1_000_000, key_id)
    mark = b64encode(bytes.fromhex(receipt.digest)).decode()
    return _EVIDENCE % (mark, signed, mark, receipt.body.replace('"', '\\"'), receipt.content)


def batch_ids(world: World, course: Course) -> Bytes:
    """The ids of a course's batches, [n, 36]."""
    random = chance(key_of(world.settings.seed, "batches", course.uid), np.arange(course.batches))
    return write_uuids(uuids(course.sent + world.skews[course.sender], random))


def key_id(world: World, node: int, at: Ints) -> Ints:
    """The number of the key a node signs with at a true time: every node changes it once, in the middle."""
    return 2 * node + (at >= world.settings.start + world.settings.span // 2)


def key_ids(world: World) -> list[str]:
    """The names of all keys, by number."""
    return [f"{name}-2026{letter}" for name in world.names for letter in "ab"]


def refused_in(world: World, course: Course, batch: int) -> list[tuple[int, str]]:
    """What the peer refused of a batch: positions and ids."""
    low, high = np.searchsorted(course.refused, course.edges[batch : batch + 2])
    numbers = course.refused[low:high]
    ids = [id_of(world, course.source, number) for number in numbers.tolist()]
    return list(zip(places_of(world, course, numbers).position.tolist(), ids, strict=True))


def id_of(world: World, source: int, number: int) -> str:
    """The id of one event."""
    return str(world.histories[source].facts(number, number + 1).id[0].tobytes(), "ascii")
