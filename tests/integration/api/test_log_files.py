"""The files of a tree over HTTP: their media types, and the scope of a key that reads them."""

from __future__ import annotations

from eventd.api.routes import OPERATIONS
from eventd.testing import draft
from tests.support.declared import declare, group
from tests.support.every_route import send
from tests.support.histories import OWNER, signed, start
from tests.support.v0 import Server, serving

NODE = OWNER._replace(group="edge", node="a")


async def ask(server: Server, method: str, path: str, key: str) -> tuple[int, str, bytes]:
    headers = {"Authorization": f"Bearer {key}"}
    async with server.session.request(method, f"{server.url}{path}", headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.read()


async def test_a_tree_is_served_as_the_files_of_a_transparency_log(migrated_sqlite_url: str) -> None:
    async with serving(migrated_sqlite_url, keys="looker:look,reader:read,other:read:core,operator") as server:
        sources = {"sources": [{"name": "f", "text": declare(group("a", name="edge"))}]}
        assert (await send(server, OPERATIONS["resources.apply"], "operator", {}, sources)).status == 200
        topic, tree = await start(server.log, NODE, "group:edge")
        await server.log.append(topic, [draft("e", group="edge")])
        note = (await signed(server.log, topic, NODE)).note.encode()
        log = f"/log/edge/{tree.origin[-16:]}"
        assert await ask(server, "GET", f"{log}/checkpoint", "reader") == (200, "text/plain; charset=utf-8", note)
        status, media, tile = await ask(server, "GET", f"{log}/tile/0/000.p/2", "reader")
        assert (status, media, len(tile)) == (200, "application/octet-stream", 64)
        assert await ask(server, "HEAD", f"{log}/tile/0/000.p/2", "reader") == (200, media, b"")
        for path, key, due in (
            (f"{log}/tile/0/000.p/3", "reader", 404),
            (f"{log}/tile/0/../000.p/2", "reader", 404),
            (f"{log}/", "reader", 404),
            ("/log/edge/aaaaaaaaaaaaaaaa/checkpoint", "reader", 404),
            (f"{log}/checkpoint", "looker", 403),
            (f"{log}/checkpoint", "other", 403),
            (f"{log}/checkpoint", "nobody", 401),
        ):
            assert (await ask(server, "GET", path, key))[0] == due, (path, key)
