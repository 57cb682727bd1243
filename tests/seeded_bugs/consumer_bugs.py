"""Bugs of what follows the log: watches, routers, subscriptions and callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventd.api.listener.sending import ClientStream
from eventd.api.topics.checkpoints import EventPlace
from eventd.api.topics.client_stream import FollowedTopic, WatchCursor
from eventd.api.topics.shared_reads import Page
from eventd.api.topics.start import OTHER_EPOCH, TopicSnapshot
from eventd.api.topics.topic_progress import TopicProgress
from eventd.api.topics.websocket import WsFollower
from eventd.egress.callbacks import formats
from eventd.egress.callbacks.endpoint import CallbackEndpoint, Meaning, SendOutcome
from eventd.egress.loop.sink import Ack
from eventd.egress.routers.pump import Routing
from eventd.egress.subscriptions.run_effect import RunEffect
from eventd.egress.subscriptions.sink import SubscriptionSink
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.values import AppendResult, Drafts
from eventd.log.routers import commit
from eventd.log.routers.source import Copy, CopyPage
from eventd.store.engine.database import Connection


def pass_over_full_sockets(patch: pytest.MonkeyPatch) -> None:
    """Let a watch move on over what the socket of its client does not take."""

    def write_what_fits(self: ClientStream, text: bytes) -> None:
        if not (self.closed or self.full):
            self.transport.write(text)

    async def go_on(_: ClientStream) -> None:
        pass

    patch.setattr(ClientStream, "write", write_what_fits)
    patch.setattr(ClientStream, "drain", go_on)


def move_routers_later(patch: pytest.MonkeyPatch) -> None:
    """Write the copies of routers in one transaction, and how far the routers are in another one."""
    settle, submit = commit._settle, Routing._submit
    waiting: list[Any] = []

    def put_off(tx: Any, moves: Any, done: Any) -> None:
        waiting.append((tx.now, moves, done))

    async def submit_twice(self: Routing, moves: Any) -> None:
        await submit(self, moves)
        later, waiting[:] = list(waiting), []
        for now, some, done in later:

            def move(conn: Connection, now: int = now, some: Any = some, done: Any = done) -> None:
                settle(cast(Transaction, SimpleNamespace(conn=conn, now=now)), some, done)

            await self._log.database.write(move)

    patch.setattr(commit, "_settle", put_off)
    patch.setattr(Routing, "_submit", submit_twice)


class _EffectAlone:
    """Writes the effect of a run, and moves no cursor."""

    cursor = None
    durable = True
    turn = Turn.BACKGROUND
    is_brief = False

    def __init__(self, effect: RunEffect) -> None:
        self.topic_id = effect.topic_id
        self.weight = effect.weight
        self._effect = effect

    def admit(self, tx: Transaction) -> Drafts:
        return self._effect.admit(tx)

    def finish(self, tx: Transaction, appended: AppendResult) -> None:
        self._effect.write(tx, appended)


def store_effects_late(patch: pytest.MonkeyPatch) -> None:
    """Store what a plugin has returned after its subscription has moved on, in another transaction.

    The other way round nothing would be wrong: a batch whose run did not end is run again as it was, and what it
    derives has the same ids.
    """
    deliver, settled = SubscriptionSink.deliver, SubscriptionSink.settled

    async def deliver_without(self: SubscriptionSink, outbound: Any) -> Ack:
        ack = await deliver(self, outbound)
        if isinstance(ack.effect, RunEffect):
            self.__dict__["waiting"] = replace(ack.effect, ending=None)
            ack = replace(ack, effect=replace(ack.effect, part=None, drafts=(), observations=(), ended=()))
        return ack

    def settle_and_store(self: SubscriptionSink, ack: Ack) -> None:
        settled(self, ack)
        if isinstance(ack.effect, RunEffect):
            self._log.submit(_EffectAlone(self.__dict__.pop("waiting")))

    patch.setattr(SubscriptionSink, "deliver", deliver_without)
    patch.setattr(SubscriptionSink, "settled", settle_and_store)


def settle_without_answers(patch: pytest.MonkeyPatch) -> None:
    """Take a message for delivered that the receiver of a callback has not answered."""
    send = CallbackEndpoint.send

    async def send_once(self: CallbackEndpoint, *given: Any, **options: Any) -> SendOutcome:
        outcome = await send(self, *given, **options)
        missing = outcome.meaning is Meaning.UNAVAILABLE and outcome.status == 0
        return outcome._replace(meaning=Meaning.DELIVERED, status=200) if missing else outcome

    patch.setattr(CallbackEndpoint, "send", send_once)


def compare_no_epochs(patch: pytest.MonkeyPatch) -> None:
    """Take the seq of a client that begins to watch for one of the present epoch, whatever epoch it names."""
    patch.setattr(TopicSnapshot, "epoch_of", lambda self, _: self.epoch)


def take_ids_for_new(patch: pytest.MonkeyPatch) -> None:
    """Take the seq in the id of an event for one of the newest epoch of its session, whatever epoch the id names."""
    continue_after = TopicProgress.continue_after

    def continue_in_newest(self: TopicProgress, place: EventPlace) -> None:
        newest = self.number_of(self._furthest[-1].epoch)
        continue_after(self, place._replace(epoch=newest))

    patch.setattr(TopicProgress, "continue_after", continue_in_newest)


def continue_with_tombstones(patch: pytest.MonkeyPatch) -> None:
    """Take the id of an event for one of an ended epoch: the stream after it begins with a tombstone."""

    def continue_in_none(self: TopicProgress, place: EventPlace) -> None:
        self.begun = WatchCursor(place.seq, OTHER_EPOCH)

    patch.setattr(TopicProgress, "continue_after", continue_in_none)


def change_copies(patch: pytest.MonkeyPatch) -> None:
    """Change the data of records as a router copies them."""
    of_records = CopyPage.of_records

    def of_changed(copies: Sequence[Copy]) -> CopyPage:
        return of_records([copy._replace(body=copy.body.replace('"x', '"y')) for copy in copies])

    patch.setattr(CopyPage, "of_records", of_changed)


def send_data_of_others(patch: pytest.MonkeyPatch) -> None:
    """Send to a receiver each event with the data of the one before."""
    text_of = formats._standard
    before = ["{}"]

    def text_of_another(type: str, timestamp: str, data: str, *names: str) -> str:
        text = text_of(type, timestamp, before[0], *names)
        before[0] = data
        return text

    patch.setattr(formats, "_standard", text_of_another)


def stop_after_news(patch: pytest.MonkeyPatch) -> None:
    """Let a client of a WebSocket that was sent a new page wait for no further one."""
    take = FollowedTopic.take

    def take_once(self: FollowedTopic, page: Page) -> None:
        if not isinstance(self._follower, WsFollower):
            take(self, page)
        elif not (self.has_left or self._follower.has_ended):
            self._follower.send(self, page)

    patch.setattr(FollowedTopic, "take", take_once)
