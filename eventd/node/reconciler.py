"""Brings the running parts of a node in line with the declarations: groups, their links, subscriptions, callbacks and
schedules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from eventd.egress.cursors import (
    follow,
    forgive,
    forgive_failed,
    link_name,
    read_declared,
    read_topic_ids,
    retry_own_causes,
    subscription_name,
    topics_of_callbacks,
)
from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import read_cursors
from eventd.node.callbacks import CallbackPurpose, Callbacks, purposes_of_subscribers
from eventd.node.callbacks import purposes_of as callback_purposes_of
from eventd.node.membership import GroupDependencies, Membership
from eventd.node.schedules import Schedules
from eventd.node.subscriptions import Subscribers, purposes_of
from eventd.resources.callback_configuration import callbacks
from eventd.resources.group_configuration import GroupConfig, effective, topic_of
from eventd.resources.plugin_configuration import schedules
from eventd.resources.subscriber_configuration import subscriber_limits
from eventd.runtime.worker_share import Share
from eventd.settings.model import Settings
from eventd.store.rows.callback_cursors import CALLBACK_KINDS
from eventd.store.rows.registry import StoredResource
from eventd.store.rows.routemaster import read_subscribers
from eventd.witnessing.node_keys import LoadedKeys

logger = logging.getLogger("eventd.node")

FOLLOW_SECONDS = 1.0
"""Maximum number of seconds for which the answer to a client waits until callbacks follow the client's change, which
is stored already."""
GATHER_SECONDS = 0.02
"""Minimum number of seconds between two rounds of following changes of subscriptions, because many clients may
subscribe at the same time."""
AGAIN_SECONDS = 1.0
"""Seconds until a change of subscriptions that could not be read is read again."""
RECOVERY_SECONDS = 5.0
"""Seconds between two retries after a failure, such as a missing key file or an address in use."""


class Reconciler:
    """Follows the declarations for one process.

    `groups` are those that the process serves; the reconciler adds and removes them. Call `begin`, then `apply` each
    time when the declarations may have changed; `changed` is called after each `apply`.
    """

    def __init__(
        self,
        settings: Settings,
        share: Share,
        log: EventLog,
        groups: dict[str, Membership],
        changed: Callable[[], None],
    ) -> None:
        self.version = 0
        self.declared: list[StoredResource] = []
        self.configs: Mapping[str, GroupConfig] = {}
        """The groups of this node, including those that another of its processes serves."""
        self.at_rest = asyncio.Lock()
        """A lock that is held while declarations are applied, and by code that must not run at the same time."""
        self._settings = settings
        self._share = share
        self._log = log
        self._groups = groups
        # Beside the database where that is a file, as the head file.
        path = log.database.path
        self._history_keys = LoadedKeys(settings.data_dir if path is None else path.parent, log.chance)
        self._on_change = changed
        self._changed: set[str] = set()  # links whose failures are to be cleared
        self._callback_topics: Mapping[str, int | None] = {}
        self._subscriptions = asyncio.Event()
        self._followed: list[asyncio.Future[None]] = []  # those that wait for the next round

    def begin(
        self, around: GroupDependencies, subscribers: Subscribers, callbacks: Callbacks, schedules: Schedules
    ) -> None:
        """Set the groups' dependencies, and the other consumers and the schedules, which `apply` brings in line as
        well."""
        self._dependencies = around
        self._subscribers = subscribers
        self._callbacks = callbacks
        self._schedules = schedules
        self._log.epoch_begun = self._reopen_links

    def _reopen_links(self) -> None:
        """Let all links ask for their marks: only then do their peers refuse late batches of the epoch before."""
        for group in self._groups.values():
            group.wake_all()

    async def apply(self, *, strict: bool = False) -> None:
        """Bring everything that runs in line with the declarations.

        `strict`, for the start: raise if an address cannot be bound, clear the failures of all links and
        subscriptions, and immediately try the callbacks that could not send because of this node itself.
        """
        async with self.at_rest:
            while not await self._take_over(strict=strict):
                pass  # the declarations changed meanwhile

    async def _take_over(self, *, strict: bool) -> bool:
        """Take over the declarations once.

        Return False if they changed between reading them and adjusting the cursors.
        """
        version, declared, topics = await self._log.database.read(read_declared)
        configs = {name: c for name, c in effective(declared).items() if self._settings.group in (None, name)}
        served = {name: config for name, config in configs.items() if self._share.serves(name)}
        purposes = purposes_of(declared, configs if self._share.is_first else {})
        self._changed.update(await self._retire(served, topics))
        self._changed.update(await self._subscribers.retire(purposes))
        self._changed.update(await self._callbacks.retire(await self._callback_purposes(declared, configs)))
        if strict:
            self._changed.update(link_name(g.name, p.node_name) for g in served.values() for p in g.peers.values())
            self._changed.update(subscription_name(*at) for at in purposes)
            await self._log.database.write(retry_own_causes)
        changed = sorted(self._changed)
        found = await self._log.database.write(follow, version, declared, changed, self._log.clock.now())
        if found is None:
            return False
        cursors, topics = found
        self._changed.clear()
        for name, config in served.items():
            await self._enrol(name, config, topics[topic_of(name)], strict=strict)
            await self._groups[name].adjust(cursors)
        self.declared = declared
        self.configs = configs
        await self._subscribers.adjust(cursors)
        await self._callbacks.adjust(cursors)
        self._callback_topics = topics_of_callbacks(declared, cursors)
        if self._settings.group is None and self._share.is_first:  # otherwise each of several processes would run them
            await self._schedules.adjust(schedules(declared))
        self.version = version
        self._on_change()
        return True

    async def _callback_purposes(
        self, declared: list[StoredResource], configs: Mapping[str, GroupConfig]
    ) -> dict[str, CallbackPurpose]:
        """Return the purposes of the callbacks that this process serves, those of subscribers included."""
        found = callback_purposes_of(callbacks(declared))
        only = self._settings.group
        chosen = {
            name: purpose
            for name, purpose in found.items()
            if purpose.config.group in configs or (not purpose.config.group and not only)
        }
        if self._settings.routemaster_listen is not None and not only:
            rows = await self._log.database.read(read_subscribers)
            chosen |= purposes_of_subscribers(rows, subscriber_limits(self._settings))
        return {name: purpose for name, purpose in chosen.items() if self._share.serves(name)}

    def subscriptions_changed(self) -> None:
        """Note that a subscription to the Routemaster surface may have changed."""
        self._subscriptions.set()

    async def subscriptions_followed(self) -> None:
        """Wait until the callbacks of this process follow all stored changes of subscriptions, for `FOLLOW_SECONDS`.

        So after the answer to a subscriber, no further request to it uses its former settings.
        """
        followed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._followed.append(followed)
        self.subscriptions_changed()
        timer = self._log.clock.timer(FOLLOW_SECONDS)
        try:
            await asyncio.wait({followed, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            followed.cancel()
            timer.cancel()

    async def follow_subscriptions(self) -> None:
        """Bring the callbacks of subscribers in line with their subscriptions, until cancelled."""
        while True:
            await self._subscriptions.wait()
            self._subscriptions.clear()
            waiting, self._followed = self._followed, []
            try:
                await self._adjust_subscribers()
            except EventdError as error:
                logger.warning("subscriptions not followed", extra={"error": str(error)})
                await self._log.clock.sleep(AGAIN_SECONDS)
            else:
                for followed in waiting:
                    if not followed.done():
                        followed.set_result(None)
            await self._log.clock.sleep(GATHER_SECONDS)

    async def _adjust_subscribers(self) -> None:
        try:
            async with self.at_rest:
                await self._callbacks.retire(await self._callback_purposes(self.declared, self.configs))
                await self._callbacks.adjust(await self._log.database.read(read_cursors, *CALLBACK_KINDS))
        except BaseException:
            self._subscriptions.set()  # also after a defect: the supervisor runs this again
            raise

    async def _retire(self, configs: Mapping[str, GroupConfig], topics: Mapping[str, int]) -> list[str]:
        """Leave groups that are not served any more, and end links that are declared differently.

        Returns the names of the cursors of the ended links, and of all links of a group whose own settings changed.
        A group with another topic was deleted and declared again since the last call: it is another group.
        """
        changed: list[str] = []
        for name, group in list(self._groups.items()):
            if name not in configs or group.topic_id != topics.get(topic_of(name)):
                del self._groups[name]
                self._log.wakeups.touch(group.topic_id)  # streams of its events are notified that it is gone
                await group.leave()
                logger.info("group left", extra={"group": name})
            else:
                changed += await group.retire(configs[name])
                if not group.config.same_but_peers(configs[name]):
                    changed += group.link_names()
        return changed

    async def _enrol(self, name: str, config: GroupConfig, topic_id: int, *, strict: bool) -> None:
        if name in self._groups:
            await self._groups[name].update(config)
            await self._groups[name].keep_history(self._history_keys)
            return
        group = Membership(config, topic_id, self._dependencies)
        self._groups[name] = group
        await group.keep_history(self._history_keys)
        if strict:
            await group.start()
        else:
            await group.load_keys()
            await group.recover()

    # --- what does not work yet -------------------------------------------------------------------------------

    async def recover_for_ever(self) -> None:
        """Retry every `RECOVERY_SECONDS` to read keys and to listen where that failed, until cancelled."""
        while True:
            await self._log.clock.sleep(RECOVERY_SECONDS)
            async with self.at_rest:  # a group that is being left must not be opened again
                for group in self._groups.values():
                    try:
                        await self._recover(group)
                    except EventdError as error:
                        logger.warning("group recovery failed", extra={"group": group.config.name, "error": str(error)})
            if self._callback_topics:
                await self._look_at_topics()

    async def _recover(self, group: Membership) -> None:
        if not group.trouble:
            return
        keyless = "keys" in group.trouble
        await group.recover()
        if keyless and "keys" not in group.trouble:
            await self._forgive(group)

    async def _look_at_topics(self) -> None:
        """Start callbacks whose topic was created, and restart those whose topic was deleted and created again."""
        found = await self._log.database.read(read_topic_ids, list(self._callback_topics))
        if found != self._callback_topics:
            await self.apply()

    async def reload(self) -> None:
        """Read the key files of all groups and callbacks that are served here again, and retry their links at once."""
        async with self.at_rest:  # otherwise the keys of an earlier declaration could be read last
            for group in self._groups.values():
                await group.load_keys()
                await self._forgive(group)
            names = await self._callbacks.reload()
            await self._log.database.write(forgive_failed, names, self._log.clock.now())
            self._callbacks.look_again(names)

    async def _forgive(self, group: Membership) -> None:
        """Clear the failures of the group's links and repairs, and try each at once: the cause may be gone."""
        await self._log.database.write(forgive, group.link_names(), self._log.clock.now())
        group.wake_all()
