"""This node's callbacks: one consumer for each callback and each resend, and the secrets that sign their requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from eventd.egress.callbacks.cursor import CallbackChange, CallbackCursor, Notify
from eventd.egress.callbacks.endpoint import CallbackSecrets
from eventd.egress.callbacks.rate import RateLimiter
from eventd.egress.callbacks.selection import CallbackSelection
from eventd.egress.callbacks.sink import CallbackDependencies, CallbackPage, CallbackSink
from eventd.egress.loop.active import Consumers
from eventd.egress.loop.consumer import Consumer
from eventd.errors import SecretUnreadable
from eventd.log.cursors.cursors import Cursor
from eventd.resources.callback_configuration import CallbackConfig
from eventd.resources.callback_secret_files import CallbackSecretFiles
from eventd.resources.subscriber_configuration import SubscriberLimits, subscriber_authorization, subscriber_config
from eventd.runtime.supervisor import Supervisor
from eventd.store.rows.callback_cursors import (
    CALLBACK_KINDS,
    RESEND,
    SUBSCRIBER,
    callback_name,
    callback_of,
    is_subscriber,
)
from eventd.store.rows.routemaster import SubscriberRow
from eventd.tls.files import ClientTlsConfig

logger = logging.getLogger("eventd.callbacks")


@dataclass(frozen=True, slots=True)
class CallbackPurpose:
    """What a callback's consumer depends on: its configuration, and which records of its topic it gets.

    `authorization` is the value of that header for a subscriber of the Routemaster surface, which is not in a file, and
    `version` that of its selection; None for a declared callback.
    """

    config: CallbackConfig
    selection: CallbackSelection
    authorization: str | None = field(default=None, repr=False)
    version: int | None = None

    def is_for(self, cursor: Cursor) -> bool:
        """Return whether a cursor has the version of the selection of this purpose, so that no change of the selection
        was missed."""
        return self.version is None or cursor.kind == RESEND or self.version == cursor.selector_version


def purposes_of(declared: Mapping[str, CallbackConfig]) -> dict[str, CallbackPurpose]:
    """Return the purposes of declared callbacks, by name."""
    return {name: CallbackPurpose(config, CallbackSelection(config.selector)) for name, config in declared.items()}


def purposes_of_subscribers(rows: Iterable[SubscriberRow], limits: SubscriberLimits) -> dict[str, CallbackPurpose]:
    """Return the purposes of the subscribers of the Routemaster surface, by name."""
    found = {}
    for row in rows:
        config = subscriber_config(row, limits)
        authorization = subscriber_authorization(row)
        selection = CallbackSelection(config.selector, row.intervals)
        found[config.name] = CallbackPurpose(config, selection, authorization, row.version)
    return found


class Callbacks:
    """The running callbacks. `chance` returns numbers in [0, 1) for the jitter of the back-off.

    `files` reads their secrets. `notify` gets the name of a callback, a change of its
    condition, and a sentence about it.
    """

    def __init__(
        self,
        dependencies: CallbackDependencies,
        supervisor: Supervisor,
        chance: Callable[[], float],
        files: CallbackSecretFiles,
        notify: Callable[[str, CallbackChange, str], None],
    ) -> None:
        self._dependencies = dependencies
        self._spawn = supervisor.spawn
        self._chance = chance
        self._files = files
        self._notify = notify
        self._consumers: Consumers[CallbackPurpose] = Consumers(supervisor.keep, self._start)
        self._purposes: dict[str, CallbackPurpose] = {}
        self._secrets: dict[str, CallbackSecrets] = {}
        self._reloads = 0
        self._rates: dict[str, RateLimiter] = {}

    def __len__(self) -> int:
        return len(self._consumers)

    def _purpose(self, cursor: str) -> CallbackPurpose | None:
        return self._purposes.get(callback_of(cursor))

    async def retire(self, purposes: dict[str, CallbackPurpose]) -> list[str]:
        """Take over the new purposes; end the consumers of callbacks whose purpose has changed or is gone.

        Returns the names of the cursors of the ended consumers.
        """
        before, self._purposes = self._purposes, purposes
        for name, purpose in before.items():
            if purposes.get(name) != purpose:
                self._secrets.pop(name, None)
        ended = await self._consumers.retire(self._purpose)
        for name in [name for name in before if name not in purposes]:
            self._dependencies.metrics.forget(name)
            self._rates.pop(name, None)
        return ended

    async def adjust(self, cursors: Iterable[Cursor]) -> None:
        """Run a consumer for each cursor of this process's callbacks and their resends, and no others."""
        mine = {
            cursor.name: cursor
            for cursor in cursors
            if cursor.kind in CALLBACK_KINDS
            and (purpose := self._purpose(cursor.name)) is not None
            and purpose.is_for(cursor)
        }
        await self._consumers.adjust(mine, self._purpose)

    def _start(self, cursor: Cursor, purpose: CallbackPurpose) -> Consumer[CallbackPage]:
        config, selection = purpose.config, purpose.selection
        if cursor.kind == RESEND:
            selection = CallbackSelection.from_json(cursor.selection)
        sink = CallbackSink(
            config,
            selection,
            cursor,
            callback_name(config.name),
            partial(self._read_secrets, purpose),
            self._rate_of(config),
            self._dependencies,
        )
        disable_after = None if cursor.kind == RESEND else config.disable_after
        log, notify = self._dependencies.log, self._notify_of(config.name)
        subscriber = config.name.removeprefix(SUBSCRIBER) if is_subscriber(cursor.name) else ""
        stored = CallbackCursor(
            log,
            cursor.name,
            sink.take_failures,
            disable_after,
            notify,
            subscriber=subscriber,
            stored=sink.note_stored,
        )
        return Consumer(
            self._dependencies.log,
            cursor.name,
            sink,
            version=cursor.selector_version,
            spawn=self._spawn,
            backoff=config.backoff,
            chance=self._chance,
            cursors=stored,
            about={"callback": config.name},
            families=selection.families,
        )

    def _rate_of(self, config: CallbackConfig) -> RateLimiter:
        """Return the rate limiter that a callback shares with its resends.

        It is a new one only if the declared rate has changed.
        """
        known = self._rates.get(config.name)
        if known is None or known.per_second != config.per_second:
            known = self._rates[config.name] = RateLimiter(config.per_second, self._dependencies.log.clock)
        return known

    def _notify_of(self, name: str) -> Notify:
        def notify(change: CallbackChange, detail: str) -> None:
            self._notify(name, change, detail)

        return notify

    def tls(self) -> dict[str, ClientTlsConfig]:
        """Return the TLS of each callback, by name."""
        return {name: purpose.config.tls for name, purpose in self._purposes.items()}

    # --- secrets ----------------------------------------------------------------------------------------------

    async def _read_secrets(self, purpose: CallbackPurpose) -> CallbackSecrets:
        """Return the secrets of a callback, which are read when they are first used. Raises `SecretUnreadable`."""
        name = purpose.config.name
        known = self._secrets.get(name)
        if known is not None:
            return known
        reloads = self._reloads
        loaded = await self._files.read(purpose.config)
        if purpose.authorization is not None:
            loaded = replace(loaded, authorization=purpose.authorization)
        if reloads == self._reloads and self._purposes.get(name) == purpose:  # nothing has changed meanwhile
            self._secrets[name] = loaded
        return loaded

    async def reload(self) -> list[str]:
        """Read the secrets of all callbacks again; return the names of the cursors whose secrets have become readable.

        A callback whose secrets cannot be read does not keep the old ones: after the requests that are under way, it
        is `failed` until they can be read.
        """
        self._secrets.clear()
        self._files.forget()
        self._reloads += 1
        purposes = dict(self._purposes)
        found = await asyncio.gather(*map(self._is_readable, purposes.values()))
        names = {name for name, is_readable in zip(purposes, found, strict=True) if is_readable}
        for cursor, consumer in self._consumers:
            if callback_of(cursor) not in names:
                consumer.reopen()
        return [cursor for cursor in self._consumers.names if callback_of(cursor) in names]

    async def _is_readable(self, purpose: CallbackPurpose) -> bool:
        try:
            await self._read_secrets(purpose)
        except SecretUnreadable as error:
            about = {"callback": purpose.config.name, "error": str(error)}
            logger.error("callback secret unreadable", extra=about)
            return False
        return True

    def look_again(self, names: Sequence[str]) -> None:
        """Let the consumers with these cursor names read their cursors again, if they wait for an attempt."""
        for name, consumer in self._consumers:
            if name in names:
                consumer.look_again()

    @property
    def unsettled(self) -> int:
        """Return how many consumers are to end and still settle the work under way."""
        return self._consumers.unsettled

    async def stop(self, seconds: float) -> None:
        """End all consumers, after giving requests under way up to `seconds` to finish."""
        await self._consumers.end(self._consumers.names, seconds)
