"""Topics of the surface: their list, and which caller may delete one."""

from __future__ import annotations

from eventd.store.rows.tokens import handle_of
from tests.support.fresh import on_sqlite
from tests.support.routemaster import ROOT, SurfaceServer

EVENT = {"type": "create", "url": "https://shop.example/1"}
CALLBACK = "https://app.example/events"


@on_sqlite
async def test_the_list_has_three_members_and_shows_no_token_but_the_caller_s(stored: SurfaceServer) -> None:
    shop, app = await stored.token("shop"), await stored.token("app")
    empty = await stored.ask("GET", "/topics", user=shop)
    assert (empty.status, empty.body) == (200, b"[]")
    await stored.ask("POST", "/topics/orders", EVENT, user=shop)
    await stored.ask("POST", "/subscription", {"topics": ["bills"], "callback": CALLBACK}, user=app)
    for user, publisher in ((shop, shop), (app, handle_of("shop", shop)), (ROOT, handle_of("shop", shop))):
        assert (await stored.ask("GET", "/topics", user=user)).json == [
            {"name": "bills", "publisher": None, "events": 0},
            {"name": "orders", "publisher": publisher, "events": 1},
        ]


@on_sqlite
async def test_the_publisher_and_root_delete_and_others_do_not(stored: SurfaceServer) -> None:
    shop, app, third = [await stored.token(name) for name in ("shop", "app", "third")]
    for topic in ("orders", "bills"):
        await stored.ask("POST", f"/topics/{topic}", EVENT, user=shop)
    await stored.ask("POST", "/subscription", {"topics": ["orders", "open"], "callback": CALLBACK}, user=app)
    for topic, user in (("orders", app), ("orders", third), ("open", third)):
        heard = await stored.ask("DELETE", f"/topics/{topic}", user=user)
        assert (heard.status, heard.text) == (403, "topic claimed")
    changes = stored.changes
    for topic, user in (("orders", shop), ("bills", ROOT), ("open", app)):
        heard = await stored.ask("DELETE", f"/topics/{topic}", user=user)
        assert (heard.status, heard.body, "content-type" in heard.headers) == (204, b"", False)
    assert stored.changes == changes + 3
    for topic in ("orders", "none", "No%20name", "%00", "%FF"):
        heard = await stored.ask("DELETE", f"/topics/{topic}", user=shop)
        assert (heard.status, heard.body) == (404, b"")
    assert (await stored.ask("GET", "/topics", user=shop)).json == []


async def test_the_path_of_the_go_client_is_the_same(surface: SurfaceServer) -> None:
    shop = await surface.token("shop")
    await surface.ask("POST", "/topics/orders", EVENT, user=shop)
    assert (await surface.ask("DELETE", "/topic/orders", user=shop)).status == 204
    assert (await surface.ask("DELETE", "/topic/orders", user=shop)).status == 404


async def test_a_deleted_topic_owes_what_was_published_and_a_new_one_of_the_name_has_no_subscribers(
    surface: SurfaceServer,
) -> None:
    shop, app = await surface.token("shop"), await surface.token("app")
    await surface.ask("POST", "/subscription", {"topics": ["orders"], "callback": CALLBACK}, user=app)
    await surface.ask("POST", "/topics/orders", EVENT, user=shop)
    await surface.ask("DELETE", "/topics/orders", user=shop)
    await surface.ask("POST", "/topics/orders", EVENT, user=shop)
    (row,) = (await surface.ask("GET", "/subscriptions", user=app)).json
    assert (row["topics"], row["events"]["queued"]) == ([], 1)
    assert (await surface.ask("DELETE", "/subscriber/topics/orders", user=app)).text == "not subscribed"
    assert (await surface.ask("GET", "/topics", user=app)).json[0]["events"] == 1
