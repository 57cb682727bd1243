"""Returns the dead letters of a queue to it: each is removed from their topic and written as a new job, in one unit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from eventd.errors import Conflict
from eventd.log.core.blocks import Block
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.pages import LOOKED_AT
from eventd.log.core.records import content_size, read_body, write_body
from eventd.log.core.scan import scan_seqs
from eventd.log.core.topic_row import TopicRow, find_topic
from eventd.log.core.values import NOTHING, AppendResult, Drafts
from eventd.log.queues.transaction import LETTER_FROM, LETTER_META, LETTER_STAMPS, read_queue
from eventd.log.retention.prefix import advance_floor
from eventd.log.topics.delete import delete_in_block
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.limits import apply_ttl
from eventd.log.topics.write import apply_limits_once, require_fit

MOST_AT_ONCE = 500
"""Maximum number of dead letters that one unit returns."""
MOST_BYTES = 8 << 20


class ReturnedLetters(NamedTuple):
    """How many dead letters were returned, and the seq of their topic up to which it was searched.

    `complete`: none is left up to the seq that the request named.
    """

    topic_id: int
    returned: int
    searched: int
    upto: int

    @property
    def complete(self) -> bool:
        return self.searched >= self.upto


class _Letter(NamedTuple):
    """A dead letter, and the body of the job that it becomes."""

    seq: int
    body: str
    tag: str | None
    node: str | None


class ReturnLetters:
    """Return dead letters of a queue, in the order in which they were given up. Result: `ReturnedLetters`.

    It looks at those with a seq in `(after, upto]` (None: all that exist now). Raises `TopicNotFound`, `NotAQueue`,
    `Conflict` for a queue without a log of dead letters, and `TopicFull` or `RecordTooLarge` if the queue refuses them.
    """

    cursor = None
    durable = False  # a topic may require it
    weight = MOST_AT_ONCE
    turn = Turn.BULK
    is_brief = False

    def __init__(self, queue: str, *, after: int = 0, upto: int | None = None, most: int = MOST_AT_ONCE) -> None:
        self._queue = queue
        self._after = after
        self._upto = upto
        self._most = min(most, MOST_AT_ONCE)
        self._line: TopicRow | None = None
        self._result = ReturnedLetters(0, 0, 0, 0)

    @property
    def topic_id(self) -> int | None:
        return None if self._line is None else self._line.id

    def admit(self, tx: Transaction) -> Drafts:
        self._line = line = apply_ttl(tx.conn, read_queue(tx.conn, self._queue), tx.now)
        topic = _read_letters(tx, line)
        upto = topic.head_seq if self._upto is None else min(self._upto, topic.head_seq)
        found = list[tuple[Block, list[_Letter]]]()
        count = size = looked = 0
        searched = max(self._after, topic.evicted_seq)
        for block in scan_seqs(tx.conn, topic.id, searched, upto):
            letters = [letter for letter in _letters_of(block, line.name) if searched < letter.seq <= upto]
            room = self._most - count
            found += [(block, letters[:room])] if letters else []
            count, size = count + len(letters[:room]), size + sum(len(one.body) for one in letters[:room])
            looked += block.records
            searched = letters[room - 1].seq if len(letters) > room else min(upto, block.last_seq)
            if count >= self._most or size >= MOST_BYTES or looked >= LOOKED_AT:
                break
        else:
            searched = upto
        self._result = ReturnedLetters(line.id, count, searched, upto)
        if not count:
            return NOTHING
        drafts = _drafts([letter for _, letters in found for letter in letters])
        require_fit(tx, line, drafts, 0)  # of all topics together, nothing is added
        for block, letters in found:
            topic = delete_in_block(tx.conn, topic, block, [letter.seq for letter in letters], tx.now)
        advance_floor(tx.conn, topic, tx.now)
        if "fsync" in (topic.durability, line.durability):
            tx.must_flush = True
        return drafts

    def finish(self, tx: Transaction, appended: AppendResult) -> ReturnedLetters:
        if self._result.returned and self._line is not None:
            apply_limits_once(tx, self._line)
        return self._result


def _read_letters(tx: Transaction, line: TopicRow) -> TopicRow:
    """Return the topic of a queue's dead letters, without records that are too old."""
    name = line.config.dead_letter
    if not name:
        raise Conflict(f"the queue {line.name!r} keeps no dead letters", hint="set `dead_letter` in its configuration")
    topic = find_topic(tx.conn, name)
    if topic is None:
        raise TopicNotFound(name)
    if topic.is_queue or topic.of_group or topic.id == line.id:
        raise Conflict(
            f"the dead letters of {line.name!r} are in {name!r}, which is not a log of records",
            hint="claim them there, and write them to the queue",
        )
    return apply_ttl(tx.conn, topic, tx.now)


def _letters_of(block: Block, queue: str) -> Iterator[_Letter]:
    """Yield the dead letters of a queue in a block."""
    for seq, body in enumerate(block.bodies(), block.seq):
        if not body or LETTER_FROM not in body:
            continue
        node, tag, data, meta = read_body(body)
        try:
            members = msgspec.json.decode(meta or "{}", type=dict[str, msgspec.Raw])
            of = msgspec.json.decode(members.get(LETTER_FROM, msgspec.Raw(b'""')))
        except msgspec.DecodeError:
            continue
        if of == queue:
            yield _Letter(seq, write_body(node, tag, data, _own_meta(members)), tag, node)


def _own_meta(members: dict[str, msgspec.Raw]) -> str | None:
    """Return the meta that the job had before it was given up."""
    if LETTER_META in members:
        return bytes(members[LETTER_META]).decode()
    own = {name: value for name, value in members.items() if name not in LETTER_STAMPS}
    return msgspec.json.encode(own).decode() if own else None


def _drafts(letters: list[_Letter]) -> Drafts:
    bodies = [letter.body for letter in letters]
    return Drafts(
        paths=[""] * len(bodies),
        bodies=bodies,
        types=frozenset(letter.tag for letter in letters if letter.tag is not None),
        sources=frozenset(letter.node or "" for letter in letters),
        sizes=[*map(content_size, bodies)],
    )
