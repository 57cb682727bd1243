"""The page of histories: empty without one, and with the trees and keys of a group."""

from __future__ import annotations

from eventd.store.engine.statements import execute
from tests.integration.conftest import MakeSites
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import READ
from tests.support.console_worlds import HOSTILE
from tests.support.declared import PLAIN_GROUP
from tests.support.histories import OWNER, emit, signed, start
from tests.support.sites import Site


async def test_a_node_whose_groups_keep_no_history_says_so(sites: MakeSites, browser: MakeBrowser) -> None:
    (plain,) = sites("plain")
    await plain.start()
    await plain.join(**PLAIN_GROUP)
    assert "No group keeps a history." in (await browser(plain).get("/console/histories")).text


async def test_trees_are_shown_with_their_keys(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    log, owner = site.running.log, OWNER._replace(group="edge", node="a")
    topic, tree = await start(log, owner, "group:edge")
    await emit(log, topic, "e1")
    await signed(log, topic, owner)
    shown = (await one.get("/console/histories")).text
    assert tree.origin[-16:] in shown
    assert tree.log_key.replace("+", "&#43;") in shown or tree.log_key in shown
    await log.database.write(execute, "UPDATE trees SET trouble = ?", (HOSTILE["markup"],))
    assert HOSTILE["markup"] not in (await one.get("/console/histories")).text
