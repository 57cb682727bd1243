"""A write: a client's batch, its records, and the response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from eventd.api.bodies.bodies import HUGE_BYTES, aside
from eventd.api.bodies.json_shape import count_elements
from eventd.api.framework.models import Body, Performance, ResponseModel
from eventd.api.keys.api_key import ApiKey
from eventd.api.topics.calls import V0
from eventd.api.topics.topics import require_config
from eventd.errors import Invalid
from eventd.log.core.records import compact, encoded, join_body
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import find_topic
from eventd.log.core.values import Drafts
from eventd.log.topics.errors import BatchTooLarge, RecordTooLarge, TopicNotFound
from eventd.log.topics.topics import NAME, refuse_reserved, require_name
from eventd.log.topics.write import Write, WriteResult
from federation.event import is_plain
from federation.lines import size_of

MAX_RECORDS = 10_000
MAX_RECORD_BYTES = 1 << 20
_BLANKS = 4
"""How many times larger than the largest record the text of a record may be before white space is removed."""
_MANY = 8 * MAX_RECORDS
"""A body with more elements than this is refused before its records become objects and are counted exactly."""
MAX_META_BYTES = 16 << 10
MAX_META_KEYS = 64
MAX_TAG_BYTES = 256
MAX_NODE_BYTES = 128
MAX_KEY_BYTES = 256
NO_META = Raw()


class RecordIn(Struct):
    """A record to write. `data` and `meta` may be any JSON value; a `meta` of null means none."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw = field(default_factory=lambda: NO_META)


class WriteBody(Body):
    """A batch that is written completely or not at all.

    `node` applies to records without their own. An `idempotency_key` that the topic remembers writes nothing.
    `create`: whether a missing topic is created, with `config`; null means yes, unless `auto_create` of `config` is
    false. `disable_backpressure` has no effect.
    """

    records: list[RecordIn]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: TopicConfig | None = None
    disable_backpressure: bool = False

    @classmethod
    def require_bounded(cls, text: bytes | bytearray) -> None:
        """Raises `BatchTooLarge` for far more records than a batch may have, before each of them becomes an object."""
        if text.count(b"{") > _MANY and (records := count_elements(text, _MANY)) > _MANY:
            raise _too_many(records)


class WriteAnswer(ResponseModel):
    """The seqs of the records. `deduped`: they were written before, with the same idempotency key."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] | UnsetType = UNSET


async def write(v0: V0, key: ApiKey, topic: str, body: WriteBody, header_key: str = "") -> WriteResult:
    """Write a batch, and return its seqs. Raises `Invalid`, `Forbidden`, `Incompatible`, and what `Write` does."""
    refuse_reserved(topic, "written to")
    config = await _config_for(v0, key, topic, body.config)
    _require_count(body.records)
    idempotency_key = _read_key(
        body.idempotency_key or header_key
    )  # problems of the batch come before those of its records
    drafts = await aside(_bulk(body.records), read_batch, body)
    if not NAME.fullmatch(topic):  # not even looked up: some of these no database accepts
        _refuse_name(topic, body.create, body.config)
    unit = Write(
        topic,
        drafts,
        flushes=v0.log.flushes,
        key=idempotency_key,
        create=body.create,
        config=config,
        max_topics=v0.limits.max_topics,
        max_bytes=v0.limits.max_total_bytes,
        random=v0.log.chance.token(16),
    )
    return await v0.log.submit(unit)


def _refuse_name(topic: str, create: bool | None, config: TopicConfig | None) -> None:
    """Raises for a name that no topic can have: `TopicNotFound` if no topic is to be created, otherwise `Invalid`."""
    if create is False or (create is None and config is not None and not config.auto_create):
        raise TopicNotFound(topic)
    require_name(topic)


async def _config_for(v0: V0, key: ApiKey, topic: str, config: TopicConfig | None) -> TopicConfig | None:
    """Return the configuration for a topic that the write creates; None for the default.

    Giving one requires the scope admin if the topic is missing; without that scope it is ignored for an existing
    topic. Raises `Forbidden` and `Invalid`.
    """
    if config is None:
        return None
    if "admin" not in key.scopes:
        if not NAME.fullmatch(topic) or await v0.database.read(find_topic, topic) is None:
            key.require_scope("admin")
        return None  # the topic exists: nothing is created
    require_config(config, topic, key)
    return config


def _read_key(key: str) -> str:
    """Return the idempotency key unchanged; empty: there is none. Raises `Invalid`."""
    if not is_plain(key):
        raise Invalid("the idempotency key contains U+0000, or bytes that are not UTF-8")
    if size_of(key) > MAX_KEY_BYTES:
        raise Invalid(f"the idempotency key has more than {MAX_KEY_BYTES} bytes")
    return key


def _bulk(records: Sequence[RecordIn]) -> int:
    """Return an estimate of the time to read a batch: its bytes of data, plus a constant for each record."""
    return sum([len(record.data) for record in records]) + 128 * len(records)


def read_batch(body: WriteBody) -> Drafts:
    """Return the records in their stored form. Raises `Invalid`, `BatchTooLarge` and `RecordTooLarge`."""
    _require_count(body.records)
    if len(body.records) > 1 and _bulk(body.records) > HUGE_BYTES:
        for _ in _read_each(body, _BatchReader(body.node)):  # a refused batch must not be in memory twice
            pass
    reader = _BatchReader(body.node)
    for stored in _read_each(body, reader):
        reader.take(stored)
    return reader.drafts()


def _read_each(body: WriteBody, reader: _BatchReader) -> Iterator[tuple[str, int]]:
    for index, record in enumerate(body.records):
        try:
            yield reader.read(record)
        except Invalid as error:
            error.message = f"record {index}: {error.message}"
            raise


def _require_count(records: list[RecordIn]) -> None:
    if not records:
        raise Invalid("the batch contains no records", hint="send at least one")
    if len(records) > MAX_RECORDS:
        raise _too_many(len(records))


def _too_many(records: int) -> BatchTooLarge:
    detail = {"records": records, "max": MAX_RECORDS}
    return BatchTooLarge(f"a batch has at most {MAX_RECORDS} records", hint="send several batches", detail=detail)


class _BatchReader:
    """Reads the records of one batch: values that many of them share are checked once."""

    def __init__(self, node: str | None) -> None:
        self._default = node
        self._nodes: dict[str, str] = {}  # with the JSON text of each
        self._tags: dict[str, str] = {}
        self._sources: set[str] = set()  # empty: no node
        self._bodies: list[str] = []
        self._sizes: list[int] = []

    def read(self, record: RecordIn) -> tuple[str, int]:
        """Return the stored form of a record, and how many bytes its data and meta have.

        Raises `Invalid` and `RecordTooLarge`.
        """
        node, tag, meta = self._default if record.node is None else record.node, record.tag, bytes(record.meta)
        node_text = "" if node is None else self._nodes.get(node) or _read(self._nodes, node, "node", MAX_NODE_BYTES)
        tag_text = "" if tag is None else self._tags.get(tag) or _read(self._tags, tag, "tag", MAX_TAG_BYTES)
        meta_text = _read_meta(meta) if meta and meta != b"null" else ""
        _require_readable(record.data, meta)
        data = compact(bytes(record.data).decode())
        size = size_of(data) + size_of(meta_text)
        if size > MAX_RECORD_BYTES:
            raise RecordTooLarge(f"its data and meta have {size} bytes, more than {MAX_RECORD_BYTES}")
        self._sources.add(node or "")
        return join_body(node_text, tag_text, data, meta_text), size

    def take(self, stored: tuple[str, int]) -> None:
        """Add a record to the batch."""
        self._bodies.append(stored[0])
        self._sizes.append(stored[1])

    def drafts(self) -> Drafts:
        """Return the whole batch."""
        paths = [""] * len(self._bodies)
        types, sources = frozenset(self._tags), frozenset(self._sources)
        return Drafts(paths=paths, bodies=self._bodies, types=types, sources=sources, sizes=self._sizes)


def _require_readable(data: Raw, meta: bytes) -> None:
    """Raises `RecordTooLarge` for a text of `_BLANKS` times the largest record: it has too many blanks to remove."""
    size = len(memoryview(data)) + len(meta)
    if size > _BLANKS * MAX_RECORD_BYTES:
        raise RecordTooLarge(f"its data and meta have {size} bytes, more than {MAX_RECORD_BYTES}")


def _read(known: dict[str, str], text: str, what: str, most: int) -> str:
    if size_of(text) > most:
        raise Invalid(f"its {what} has more than {most} bytes")
    known[text] = encoded(text)
    return known[text]


def _read_meta(meta: bytes) -> str:
    text = compact(meta.decode())
    if size_of(text) > MAX_META_BYTES:
        raise Invalid(f"its meta has more than {MAX_META_BYTES} bytes")
    if text.startswith("{") and len(msgspec.json.decode(text, type=dict[str, Raw])) > MAX_META_KEYS:
        raise Invalid(f"its meta has more than {MAX_META_KEYS} keys")
    return text


def shown(topic: str, written: WriteResult, performance: Performance, *, seqs: bool) -> WriteAnswer:
    """Return the response to a write, and add its times to `performance`; with `seqs`, it lists every seq."""
    performance.wal_append_ms = round(written.append_ms, 3)
    performance.fsync_ms = round(written.flush_ms, 3)
    return WriteAnswer(
        topic=topic,
        first_seq=written.first_seq,
        last_seq=written.last_seq,
        seqs=list(range(written.first_seq, written.last_seq + 1)) if seqs else UNSET,
        head_seq=written.head_seq,
        count=written.last_seq - written.first_seq + 1,
        created=written.created,
        deduped=written.deduped,
        performance=performance,
    )
