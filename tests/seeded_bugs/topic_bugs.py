"""Bugs of topics, queues, routers, lakes and publishing clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from eventd.api.admin.events.publish_connection import PublishConnection, UnansweredMessage
from eventd.api.topics import polls, records
from eventd.lake.folder import LocalFolder
from eventd.lake.stored_files import FileDraft
from eventd.log.core.values import AppendResult
from eventd.log.topics import topic_page
from eventd.log.topics.write import Write
from eventd.store.engine.database import Connection
from eventd.store.rows.leases import Lease


def forget_keys(patch: pytest.MonkeyPatch) -> None:
    """Do not keep the idempotency keys of writes."""
    patch.setattr(Write, "_remember", lambda *_: None)


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


def name_files_before_their_data(patch: pytest.MonkeyPatch) -> None:
    """Write the manifest of a segment before its data is on the disk."""
    create = LocalFolder.create
    late: list[Any] = []

    @contextmanager
    def create_later(self: LocalFolder, path: str) -> Iterator[FileDraft]:
        if path.endswith(".parquet"):
            file = create(self, path)
            yield file.__enter__()
            late.append(file)
            return
        with create(self, path) as draft:
            yield draft
        while late:
            late.pop().__exit__(None, None, None)

    patch.setattr(LocalFolder, "create", create_later)


def write_messages_as_checked(patch: pytest.MonkeyPatch) -> None:
    """Hand the messages of a publishing client to the writer as their checks end: those with few events first."""
    write = PublishConnection._write_events

    async def write_later(self: PublishConnection, entry: UnansweredMessage) -> None:
        async def check_and_write() -> None:
            await self._services.clock.sleep(len(entry.message.events) / 1000)
            checked = replace(entry)
            await write(self, checked)
            entry.place, entry.drafts = checked.place, checked.drafts
            checked.done.add_done_callback(finish)

        def finish(done: asyncio.Future[AppendResult]) -> None:
            error = done.exception()
            if error is not None:
                entry.done.set_exception(error)
            else:
                entry.done.set_result(done.result())

        assert self._services.spawn is not None
        entry.done = asyncio.get_running_loop().create_future()
        self._services.spawn(check_and_write(), "the check of a message")

    patch.setattr(PublishConnection, "_write_events", write_later)
