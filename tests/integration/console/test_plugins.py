"""Plugins in the console: listed with their last run, shown with their runs, run without events, and checked."""

from __future__ import annotations

import re
from pathlib import Path

from eventd.testing import until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.support.derived import OBSERVED, ROUTES, plugin, program, subscription
from tests.support.sites import Site

URL = "/console/plugins/routes"
MANUAL = (
    "answer([{'apiVersion': 'net.routerd.net/v1alpha1', 'kind': 'IPv4Route', 'metadata': {'name': 'r1'}, 'spec': {}}])"
)


async def test_runs_are_shown_with_their_errors_and_links(site: Site, browser: MakeBrowser, tmp_path: Path) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert "No plugin yet." in (await one.get("/console/plugins")).text
    failing = "print('first' + 'x' * 2000 + '<b>no route</b>', file=sys.stderr); sys.exit(42)"
    await site.apply(plugin(program(tmp_path, failing)), subscription(retry={"maxAttempts": 1}))
    await site.emit("e1", type=OBSERVED, subject="10.88.60.9/32")

    async def ran() -> bool:
        (run,) = (await site.ask("plugins.runs"))["runs"] or [{"completedAt": None}]
        return run["completedAt"] is not None

    await until(ran, "the run to end", seconds=20)
    listed = (await one.get("/console/plugins")).text
    assert f'href="{URL}"' in listed
    assert '<span class="reason">dead letter</span>' in listed
    shown = await one.get(URL)
    assert (shown.status, shown.heading) == (200, "routes")
    assert "<pre>…xxx" in shown.text
    assert ("x&lt;b&gt;no route&lt;/b&gt;" in shown.text, "first" in shown.text) == (True, False)
    assert "<b>no route" not in shown.text
    assert 'href="/console/events/edge/e1"' in shown.text
    assert 'href="/console/subscriptions/edge/claims"' in shown.text
    assert "/console/do/" not in shown.text
    assert "No run on this page" in (await one.get(f"{URL}?status=succeeded")).text
    assert '<tr id="run-' in (await one.get(f"{URL}?status=dead+letter")).text
    assert (await one.get("/console/plugins/other")).status == 404


async def test_a_plugin_runs_without_events_as_a_trial_or_to_store_its_proposal(
    site: Site, browser: MakeBrowser, tmp_path: Path
) -> None:
    await site.apply(plugin(program(tmp_path, MANUAL)))
    one = browser(site)
    await one.sign_in(ADMIN)
    form = {"name": "routes", "asked": "yes", "back": URL}
    tried = await one.post("/console/do/plugins.run", what="try it: store nothing", **form)
    assert tried.heading == "Run of routes"
    assert "Nothing is stored." in tried.text
    assert "&#34;name&#34;: &#34;r1&#34;" in tried.text
    assert (await site.ask("dynamic.list"))["parts"] == []
    stored = await one.post("/console/do/plugins.run", what="run it, and store what it proposes", **form)
    assert 'href="/console/parts/Plugin%2Froutes"' in stored.text
    assert [part["source"] for part in (await site.ask("dynamic.list"))["parts"]] == ["Plugin/routes"]
    assert (await one.post("/console/do/plugins.run", **form)).status == 400


async def test_a_plugin_is_checked(site: Site, browser: MakeBrowser, tmp_path: Path) -> None:
    await site.apply(plugin(program(tmp_path, ROUTES)))
    one = browser(site)
    await one.sign_in(ADMIN)
    checked = await one.post("/console/do/plugins.check", name="routes", asked="yes", back=URL)
    assert checked.heading == "Check of routes"
    assert len(re.findall(r'<tr id="check-', checked.text)) > 5


async def test_a_key_of_some_groups_learns_why_it_sees_no_plugin(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(EDGE)
    assert "limited to some groups" in (await one.get("/console/plugins")).text
    assert (await one.get(URL)).status == 403
