"""Doctor in the console: the checks, the plan, and the safe fixes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.console.conftest import MakeBrowser, actions_of
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.support.declared import group, peer
from tests.support.ports import free_port
from tests.support.sites import Site


async def test_checks_are_shown_and_filtered(site: Site, browser: MakeBrowser) -> None:
    await site.apply(peer("gone", free_port()))
    one = browser(site)
    await one.sign_in(READ)
    shown = await one.get("/console/doctor")
    assert (shown.status, shown.heading) == (200, "Doctor")
    count = shown.text.count('<tr id="check-')
    assert count > 1
    filtered = {}
    for status in ("fail", "warn", "pass", "skip"):
        text = (await one.get(f"/console/doctor?status={status}")).text
        filtered[status] = text.count('<tr id="check-')
    assert sum(filtered.values()) == count
    assert max(filtered.values()) < count
    lost = await one.get("/console/doctor?group=none")
    assert (lost.status, ">Without filters<" in lost.text) == (404, True)
    unfit = await one.get("/console/doctor?status=maybe")
    assert (unfit.status, "status: &#39;maybe&#39; is not one of fail, warn, pass, skip" in unfit.text) == (400, True)
    assert '<a class="button" href="/console/doctor">Without filters</a>' in unfit.text


async def test_a_key_of_some_groups_checks_these(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(EDGE)
    for query in ("", "?group=edge"):
        shown = await one.get(f"/console/doctor{query}")
        assert (shown.status, '<tr id="check-' in shown.text) == (200, True)
    await site.apply(group("a", port=0, secret=site.secret, name="edge-2"))
    assert "choose one to check it" in (await one.get("/console/doctor")).text
    assert (await one.get("/console/doctor?group=other")).status == 403


async def test_safe_fixes_are_named_before_they_are_applied(site: Site, browser: MakeBrowser, tmp_path: Path) -> None:
    far = await Site("far", tmp_path).start()
    await far.join(site)
    await site.apply(peer("far", far.port, retry={"baseBackoff": "10m", "maxBackoff": "1h"}))
    await site.emit("e1", ttl="1h")
    await site.caught_up("far")
    await far.stop()
    await site.emit("e1", ttl="2h")
    await site.in_state("far", "backing-off")
    one = browser(site)
    await one.sign_in(ADMIN)
    url, form = "/console/do/doctor.fix", {"group": "edge", "asked": "yes", "back": "/console/doctor"}
    unseen = await one.post(url, **form)
    assert unseen.heading == "Apply the safe fixes?", "nothing is fixed before the visitor has seen what"
    asked = await one.get(f"{url}?group=edge&seen=x&back=/console/doctor")
    assert (asked.status, asked.heading) == (200, "Apply the safe fixes?")
    assert "edge far: try the link at once" in asked.text
    other = await one.post(url, **form, seen="0" * 64)
    assert other.heading == "Apply the safe fixes?", "other fixes than those that were shown are shown first"
    (seen,) = re.findall(r'name="seen" value="([^"]*)"', asked.text)
    done = await one.post(url, **form, seen=seen)
    assert (done.url, done.heading) == ("/console/doctor?done=doctor.fix", "Doctor")
    actions = await actions_of(site)
    assert [action["operation"] for action in actions] == ["doctor.fix"]


async def test_without_a_safe_fix_nothing_is_applied(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(ADMIN)
    asked = await one.get("/console/do/doctor.fix?group=edge")
    assert "no safe action would change anything" in asked.text
    assert ("Check again" in asked.text, 'name="seen"' in asked.text) == (True, False)
    await one.post("/console/do/doctor.fix", group="edge", asked="yes", seen="0" * 64)
    assert await actions_of(site) == []


async def test_fixes_are_refused_without_their_scope(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert "/console/do/" not in (await one.get("/console/doctor")).text
    assert (await one.post("/console/do/doctor.fix", asked="yes")).status == 403
