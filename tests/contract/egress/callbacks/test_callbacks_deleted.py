"""A callback that is no longer declared leaves nothing behind, and a later one of the same name is a new one."""

from __future__ import annotations

from eventd.egress.cursors import reconcile
from eventd.log.cursors.cursors import read_cursors
from eventd.resources.apply import apply_loaded
from eventd.resources.reading.documents import load_text
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.callback_cursors import CALLBACK
from eventd.store.rows.registry import read_resources
from eventd.testing import until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.callback_receivers import Receiver, Reply
from tests.support.called_back import CalledBack, callback
from tests.support.declared import callback as resource
from tests.support.declared import declare, group

TABLES = ("cursors", "selectors", "dead_letters", "callback_attempts")


async def apply(called: CalledBack, *names: str) -> None:
    """Apply callbacks of these names, and no others, to the group `g`."""
    called.clock.advance(1)
    now = called.clock.now()
    loaded = load_text("a.yaml", declare(group("a", name="g"), *(resource(name, group="g") for name in names)))

    def change(conn: Connection) -> None:
        apply_loaded(conn, loaded, now=now, prune=True)
        reconcile(conn, read_resources(conn), now)

    await called.log.database.write(change)


def rows(conn: Connection) -> dict[str, int]:
    return {table: int(fetch(conn, f"SELECT count(*) FROM {table}")[0][0]) for table in TABLES}


@BOTH_DATABASES
async def test_its_cursor_selections_dead_letters_and_attempts_go(called: CalledBack, receiver: Receiver) -> None:
    await called.log.topic("group:g")
    await apply(called)
    before = await called.log.database.read(rows)
    await apply(called, "hook", "other")
    receiver.answer = lambda request: Reply(400 if request.id == "bad" else 503 if request.id == "e3" else 204)
    await called.declare(callback(receiver.url, isolate_after=1))
    await called.emit("bad", "e2")
    await called.caught_up()
    await called.emit("e3")
    await called.failed(1)
    assert len(await called.letters()) == 1
    await called.callbacks.stop(0.0)
    await apply(called, "other")
    assert [one.name for one in await called.log.database.read(read_cursors, CALLBACK)] == ["callback:other"]
    assert await called.stored_failures() == []
    await apply(called)
    assert await called.log.database.read(rows) == before
    await apply(called, "hook")
    (cursor,) = await called.log.database.read(read_cursors, CALLBACK)
    assert (cursor.position, cursor.attempts, cursor.succeeded_at) == (3, 0, None)


async def test_the_change_of_one_callback_disturbs_no_other_and_keeps_its_place(
    called: CalledBack, receiver: Receiver
) -> None:
    await called.declare(callback(receiver.url, name="one"))
    await called.declare(callback(receiver.url, name="two"))
    await called.emit("e1")
    await called.caught_up("one")
    await called.caught_up("two")
    tasks = {name: consumer for name, consumer in called.callbacks._consumers}
    await called.declare(callback(receiver.url, name="one", timeout=7.0))
    after = {name: consumer for name, consumer in called.callbacks._consumers}
    assert after["callback:two"] is tasks["callback:two"]
    assert after["callback:one"] is not tasks["callback:one"]
    await called.emit("e2")
    await until(lambda: sorted(receiver.events) == ["e1", "e1", "e2", "e2"])
