"""A restart tries the callbacks at once that this node itself kept from sending, and no others."""

from __future__ import annotations

from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.callback_receivers import Receiver
from tests.support.declared import callback
from tests.support.sites import Site

LOOPBACK = "127.0.0.1,::1"


async def state(site: Site) -> tuple[str, str]:
    row = (await site.ask("callbacks.list"))["callbacks"][0]
    return row["state"], row["reason"]


async def test_a_callback_at_a_forbidden_address_is_tried_at_once_after_a_restart_that_allows_it(
    sites: MakeSites,
) -> None:
    (a,) = sites("a")
    receiver = await Receiver().start()
    try:
        await a.start(callback_allow=LOOPBACK)
        await a.join()
        await a.apply(callback("billing", url=receiver.url.replace("127.0.0.1", "localhost"), allowPlain=True))
        await a.stop()
        await a.start()
        await a.emit("e1")

        async def forbidden() -> bool:
            return await state(a) == ("blocked", "address_forbidden")

        await until(forbidden, "the callback to be blocked")
        await a.stop()
        await a.start(callback_allow=LOOPBACK)
        await until(lambda: receiver.events == ["e1"], "the event")  # the next attempt was due in 10 minutes
    finally:
        await receiver.stop()


async def test_a_callback_that_its_endpoint_refuses_waits_on_after_a_restart(sites: MakeSites) -> None:
    (a,) = sites("a")
    receiver = await Receiver().start()
    receiver.always(401)
    try:
        await a.start(callback_allow=LOOPBACK)
        await a.join()
        await a.apply(callback("billing", url=receiver.url.replace("127.0.0.1", "localhost"), allowPlain=True))
        await a.emit("e1")

        async def refused() -> bool:
            return await state(a) == ("blocked", "http_401")

        await until(refused, "the callback to be blocked")
        before = await a.rows("SELECT retry_at FROM cursors WHERE name = 'callback:billing'")
        await a.stop()
        await a.start(callback_allow=LOOPBACK)
        assert await a.rows("SELECT retry_at FROM cursors WHERE name = 'callback:billing'") == before
    finally:
        await receiver.stop()
