"""A simulated machine: one node that can be started, stopped, killed, frozen, and lose its power."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from eventd.log.core.head import renew_epoch
from eventd.node.machine_access import MachineAccess
from eventd.node.node import Node
from eventd.runtime.threads import ThreadFactory
from eventd.settings.loading import load
from eventd.simulation.world.clock import VirtualClock, WallTime
from eventd.simulation.world.disk import DATABASE, Disk
from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.network import NETWORK, Network, SimulatedSocket, open_address
from eventd.simulation.world.played_plugin import PlayedPlugin
from eventd.simulation.world.pools import SimulatedPool
from eventd.simulation.world.sqlite_disk import SqliteDisks
from eventd.simulation.world.streams import ChanceStreams, Stream, StreamChance
from eventd.store.engine.address import SqliteUrl, parse_url
from eventd.store.engine.claim import DatabaseClaim
from eventd.store.engine.database import Database
from eventd.store.engine.foreign_file import refuse_foreign
from eventd.store.engine.head_file import forget_head
from eventd.store.schema.migrations import pending, upgrade

if TYPE_CHECKING:  # it needs psycopg
    from eventd.simulation.world.postgres_sessions import NodeSessions

T = TypeVar("T")
API_PORT: Final = 8780
PEER_PORT: Final = 9000
JOB_SECONDS: Final = 0.001
"""The mean time of a job of a pool, and again of its answer."""
_EXECUTOR_THREADS: Final = 4


class Died(Exception):
    """The process that was asked to do something has ended."""


class Machine:
    """The machine `name`. `job_seconds` is the mean time of its jobs; faults change it.

    `on_job` is called after each job of a pool, before its answer, with the name of the pool; `on_change` with a word
    and the machine whenever it starts, ends or loses its power; `on_ready` with its name when its node has started;
    `on_run` with its name after each run of a plugin, with what `PlayedPlugin` says of it.
    """

    def __init__(
        self, name: str, network: Network, disk: Disk, disks: SqliteDisks, streams: ChanceStreams, wall: WallTime
    ) -> None:
        self.name = name
        self.address = network.add(name)
        self.disk = disk
        self.sessions: NodeSessions | None = None
        """The sessions of its node on Postgres; None: its database is a SQLite file on its disk."""
        self.wall = wall
        self.node: Node | None = None
        self.life: Life | None = None
        self.job_seconds = JOB_SECONDS
        self.on_job: Callable[[str], None] = _nothing
        self.on_change: Callable[[str, Machine], None] = _nothing
        self.on_ready: Callable[[str], None] = _nothing
        self.on_run: Callable[..., None] = _nothing
        self.begins_epoch = False
        """Whether the next start begins a new epoch of the log first, as an operator does after a restore."""
        self.boots = 1
        self.retention_seconds = 60.0
        """Seconds between two runs of retention, a setting of its node."""
        self.left_behind: list[str] = []
        """The tasks that the last stop of the node has not ended."""
        self.pools: list[SimulatedPool] = []
        """The pools of all of its processes."""
        self._lives: list[Life] = []
        self._network = network
        self._loop: VirtualLoop = network.loop
        self._disks = disks
        self._streams = streams
        self._waits: dict[asyncio.Future[Any], None] = {}

    @property
    def is_running(self) -> bool:
        """Return whether the node has started and not ended."""
        return self.node is not None

    # --- as one of its processes ------------------------------------------------------------------------------------

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the present process; return its result. Raises `Died` if the process ends first."""
        life = self.life
        if life is None or life.is_dead:
            raise Died(self.name)
        done = self._loop.create_future()
        self._waits[done] = None
        task: asyncio.Task[T] = life.call(lambda: self._loop.create_task(work()))

        def over(ended: asyncio.Task[T]) -> None:
            if not done.done():
                done.set_result(ended)

        task.add_done_callback(over, context=self._network.context)
        try:
            ended = await done
        finally:
            self._waits.pop(done, None)
        if ended is None:
            raise Died(self.name)
        return cast("asyncio.Task[T]", ended).result()

    # --- its lives ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a node on the machine's files. Raises what `Node.start` does, and `Died` if it is killed meanwhile."""
        life = self.life = Life(self.name, len(self._lives) + 1, self.address)
        self._lives.append(life)
        self._network.bring_up(self.name)
        self.on_change("start", self)
        chance = StreamChance(self._streams.of(f"process {life.name}"))
        timing = _Timing(self, self._streams.of(f"jobs {life.name}"))
        folder = self.disk.folder

        def pool(threads: int, name: str, begin: Callable[[], None] | None = None, /) -> SimulatedPool:
            self.pools.append(SimulatedPool(self._loop, timing, threads, name, begin))
            return self.pools[-1]

        self._executor = pool(_EXECUTOR_THREADS, "executor")
        plugin = PlayedPlugin(self._streams.of(f"plugin {life.name}"), partial(self.on_run, self.name))
        settings = load(
            {
                "data_dir": str(folder),
                "database_url": f"sqlite:///{folder}/{DATABASE}" if self.sessions is None else self.sessions.url,
                "api_listen": f"127.0.0.1:{API_PORT}",
                "local_socket": "off",
                "drain_timeout": "2s",
                "prune_interval": f"{round(self.retention_seconds * 1000)}ms",
                "callback_allow": NETWORK,
            },
            {},
        )
        boot = f"{self.name} {self.boots}"

        async def begin() -> Node:
            claim = await self._claim(settings.database_url, chance)
            self._migrate(settings.database_url, chance, pool, boot)
            clock = VirtualClock(self._loop, self.wall)
            sockets = cast(Any, [SimulatedSocket(self.address, API_PORT)])
            node = Node(
                settings,
                clock=clock,
                chance=chance,
                claim=claim,
                sockets=sockets,
                machine=MachineAccess(pool, boot, self.disk.rewrite, plugin.run, open_address),
            )
            life.kept.append(node)
            await node.start()
            return node

        self.node = await self.run(begin)
        self.on_change("ready", self)
        self.on_ready(self.name)

    async def stop(self) -> None:
        """Stop the node as a signal does. Raises `Died` if it is killed meanwhile."""
        node, self.node = self.node, None
        if node is None:
            return
        self.on_change("stop", self)
        await self.run(node.stop)
        own = self.life.kept if self.life is not None else []
        self.left_behind = [str(each) for each in own if isinstance(each, asyncio.Task) and not each.done()]
        self._end(resets=True)
        self.disk.keep(self._disks)

    def kill(self) -> None:
        """Kill the node's process: nothing of it runs any more, and its files stay as they are."""
        if self._end(resets=True):
            self.on_change("kill", self)
            self.disk.keep(self._disks)

    def lose_power(self) -> None:
        """Cut the machine's power: what was not synced may be lost, and its connections are not reset."""
        if self.life is None:
            return
        self._end(resets=False)
        self.boots += 1
        self._network.take_down(self.name)
        # A Postgres server is another machine: what its node has committed may not be lost then.
        self.on_change("power" if self.sessions is None else "kill", self)
        self.disk.lose_power(self._disks)

    def restore(self, copy: dict[str, bytes], *, by_hand: bool) -> None:
        """Kill the process, and replace the database by a copy, as the command does, or by hand.

        The command lets a new epoch begin. By hand, the node finds out by its head file.
        """
        self.kill()
        self.disk.restore(copy, keeps_head=by_hand)
        self.begins_epoch = not by_hand
        self.on_change("restore by hand" if by_hand else "restore", self)

    def freeze(self) -> None:
        """Stop the process without ending it, as SIGSTOP does."""
        if self.life is not None and not self.life.is_dead:
            self.life.is_frozen = True
            self.on_change("freeze", self)

    def thaw(self) -> None:
        """Let a frozen process continue."""
        if self.life is not None and self.life.is_frozen:
            self._loop.thaw(self.life)
            if not self.life.is_dead:
                self.on_change("thaw", self)

    async def _claim(self, url: str, chance: StreamChance) -> DatabaseClaim | None:
        """Claim the database, as the daemon does on Postgres. Raises `Conflict` and `DatabaseUnavailable`."""
        parsed = parse_url(url)
        if isinstance(parsed, SqliteUrl):
            return None
        claim = DatabaseClaim(parsed, self.name, "", self.name, chance)
        await claim.take_in_thread()
        return claim

    def _migrate(self, url: str, chance: StreamChance, pool: ThreadFactory, boot: str) -> None:
        """Bring the database to the newest schema, as the daemon does before it starts a node."""
        database = Database(url, chance=chance, threads=pool, boot_id=boot, rewrite=self.disk.rewrite)
        try:
            refuse_foreign(database.path)
            if self.sessions is not None or database.read_now(pending):  # a copied database has no log yet
                database.write_now(upgrade, now=1)
            if self.begins_epoch:
                self.on_change("epoch", self)  # also if the disk fails: it may have begun
                database.write_now(renew_epoch)
                if database.path is not None:
                    forget_head(database.path)
                self.begins_epoch = False
        finally:
            database.close()

    def nodes(self) -> list[Node]:
        """Return the nodes of all of its processes, also of those that have ended."""
        return [each for life in self._lives for each in life.kept if isinstance(each, Node)]

    def executor(self) -> SimulatedPool:
        """Return the default executor of the present process."""
        return self._executor

    def _end(self, *, resets: bool) -> bool:
        life = self.life
        if life is None or life.is_dead:
            return False
        life.is_dead = True
        life.held.clear()
        self.node = None
        if self.sessions is not None:
            self.sessions.end_life()
        self._network.end_life(life, resets=resets)
        for wait in list(self._waits):
            if not wait.done():
                wait.set_result(None)
        return True

    def bury(self) -> None:
        """End the present process."""
        self._end(resets=False)

    def forget(self) -> None:
        """Drop everything that the ended processes have left in memory."""
        for life in self._lives:
            life.kept.clear()


class _Timing:
    """The times of the jobs of one process."""

    def __init__(self, machine: Machine, stream: Stream) -> None:
        self._machine = machine
        self._stream = stream

    def job_seconds(self) -> float:
        return self._stream.expovariate(1.0) * self._machine.job_seconds

    def job_done(self, name: str) -> None:
        self._machine.on_job(name)


def _nothing(*_: object) -> None:
    """Do nothing: the default of the hooks."""
