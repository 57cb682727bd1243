"""Bugs that the simulated clients of topics have to find, as patches of the product."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from eventd.api.topics import polls, records
from eventd.log.core import eventlog
from eventd.log.core.head import Recovery, read_head, read_instance
from eventd.log.topics import topic_page
from eventd.log.topics.write import Write
from eventd.store.engine.database import Connection
from eventd.store.engine.failed_sync import FailedSync
from eventd.store.engine.head_file import HeadMark
from eventd.store.rows.leases import Lease
from tests.support.seeded_bugs import Patch


def keep_epochs(patch: pytest.MonkeyPatch) -> None:
    """Begin no new epoch after a loss."""

    def recover_as_is(conn: Connection, _acknowledged: HeadMark | None) -> Recovery:
        return Recovery(read_head(conn), read_instance(conn), "")

    patch.setattr(eventlog, "recover", recover_as_is)


def forget_keys(patch: pytest.MonkeyPatch) -> None:
    """Do not keep the idempotency keys of writes."""
    patch.setattr(Write, "_remember", lambda *_: None)


def trust_failed_syncs(patch: pytest.MonkeyPatch) -> None:
    """Do not write the write-ahead log again after a failed flush."""
    patch.setattr(FailedSync, "rewrite_log", lambda *_: None)


def pass_over_records(patch: pytest.MonkeyPatch) -> None:
    """Continue after the last record of the topic, though the page ended before."""
    read = topic_page.read_topic_page

    def read_on(conn: Connection, ask: topic_page.TopicQuery) -> topic_page.TopicPage:
        page = read(conn, ask)
        return replace(page, next_from_seq=page.head_seq)

    patch.setattr(records, "read_topic_page", read_on)
    patch.setattr(polls, "read_topic_page", read_on)


def end_leases_late(patch: pytest.MonkeyPatch) -> None:
    """Let a worker end a job though its lease is over, and the job another worker's."""
    patch.setattr(Lease, "is_held", lambda *_: True)


LOAD_BUGS: Final[dict[str, Patch]] = {
    bug.__name__: bug for bug in (keep_epochs, forget_keys, trust_failed_syncs, pass_over_records, end_leases_late)
}
