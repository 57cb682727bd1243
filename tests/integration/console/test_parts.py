"""Parts in the console: listed by owner, shown, deleted, and compared with the declared resources."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from eventd.testing import until
from tests.integration.console.conftest import MakeBrowser
from tests.integration.console.test_signing_in import ADMIN, EDGE, READ
from tests.support.derived import OBSERVED, ROUTES, plugin, program, subscription
from tests.support.sites import Site


async def derive(site: Site, directory: Path, *ids: str) -> list[str]:
    """Apply a subscription whose plugin proposes a route for each of these events; return the sources of the parts."""
    await site.apply(plugin(program(directory, ROUTES)), subscription())
    for number, id in enumerate(ids):
        await site.emit(id, type=OBSERVED, subject=f"10.0.{number}.9/32")

        async def derived(count: int = number + 1) -> bool:
            return len((await site.ask("dynamic.list"))["parts"]) == count

        await until(derived, f"the part of {id}", seconds=20)
    return [part["source"] for part in (await site.ask("dynamic.list"))["parts"]]


async def test_parts_are_listed_page_by_page_and_by_owner(site: Site, browser: MakeBrowser, tmp_path: Path) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert "No part yet." in (await one.get("/console/parts")).text
    newest, oldest = await derive(site, tmp_path, "e1", "e2")
    first = await one.get("/console/parts?limit=1")
    assert (quote(newest, safe="") in first.text, quote(oldest, safe="") in first.text) == (True, False)
    following = first.text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    second = await one.get(following)
    assert (quote(newest, safe="") in second.text, quote(oldest, safe="") in second.text) == (False, True)
    assert "No part has this owner." in (await one.get("/console/parts?owner=EventSubscription/other")).text
    assert "/console/do/" not in (await one.get(f"/console/parts/{quote(newest, safe='')}")).text


async def test_the_effective_configuration_is_compared_with_what_is_declared(
    site: Site, browser: MakeBrowser, tmp_path: Path
) -> None:
    one = browser(site)
    await one.sign_in(READ)
    assert "No difference" in (await one.get("/console/parts/effective")).text
    await derive(site, tmp_path, "e1")
    shown = await one.get("/console/parts/effective")
    assert "+++ effective/IPv4Route/claim-10-0-0-9" in shown.text
    assert "+  destination: 10.0.0.9/32" in shown.text
    assert "<dt>Parts in effect</dt><dd>1</dd>" in shown.text


async def test_a_masked_resource_is_named_with_its_part(site: Site, browser: MakeBrowser, tmp_path: Path) -> None:
    fallback = {"apiVersion": "net.routerd.net/v1alpha1", "kind": "IPv4Route", "name": "fallback"}
    masking = {"source": "EventSubscription/claims", "operations": ["mask"], "targets": [fallback]}
    config = "config.routerd.net/v1alpha1"
    await site.apply(
        {
            "apiVersion": fallback["apiVersion"],
            "kind": "IPv4Route",
            "metadata": {"name": "fallback"},
            "spec": {"destination": "0.0.0.0/0"},
        },
        {
            "apiVersion": config,
            "kind": "DynamicOverridePolicy",
            "metadata": {"name": "allow"},
            "spec": {"allow": [masking]},
        },
    )
    masks = f"answer([], directives=[{{'op': 'mask', 'target': {fallback}, 'reason': 'better way'}}])"
    await site.apply(plugin(program(tmp_path, masks)), subscription())
    await site.emit("e1", type=OBSERVED, subject="10.0.0.9/32")

    async def masked() -> bool:
        return bool((await site.ask("dynamic.diff"))["suppressed"])

    await until(masked, "the part that masks", seconds=20)
    (source,) = [part["source"] for part in (await site.ask("dynamic.list"))["parts"]]
    one = browser(site)
    await one.sign_in(READ)
    shown = (await one.get("/console/parts/effective")).text
    assert "-  destination: 0.0.0.0/0" in shown
    row = shown.partition('<tr id="masked-')[2].partition("</tr>")[0]
    assert f'href="/console/parts/{quote(source, safe="")}"' in row
    assert "better way" in row
    assert (await one.get(f"/console/parts/{quote(source, safe='')}")).status == 200


async def test_a_part_that_has_no_effect_is_named_with_the_reason_and_the_overview_leads_to_it(
    site: Site, browser: MakeBrowser, tmp_path: Path
) -> None:
    declared = {"apiVersion": "net.routerd.net/v1alpha1", "kind": "IPv4Route", "metadata": {"name": "claim-10-0-0-9"}}
    await site.apply(declared | {"spec": {"destination": "10.0.0.9/32"}})
    (source,) = await derive(site, tmp_path, "e1")
    link = f'href="/console/parts/{quote(source, safe="")}"'
    one = browser(site)
    await one.sign_in(READ)
    shown = (await one.get("/console/parts/effective")).text.partition('id="aside"')[2]
    assert link in shown
    assert "claim-10-0-0-9 is declared" in shown
    problems = (await one.get("/console/")).text.partition('<ul class="problems">')[2].partition("</ul>")[0]
    assert link in problems
    assert link in (await one.get("/console/doctor")).text


async def test_a_part_is_shown_with_its_events_and_deleted(site: Site, browser: MakeBrowser, tmp_path: Path) -> None:
    (source,) = await derive(site, tmp_path, "<i>e1</i>\u202e")
    url = f"/console/parts/{quote(source, safe='')}"
    one = browser(site)
    await one.sign_in(ADMIN)
    shown = await one.get(url)
    assert (shown.status, shown.heading) == (200, source)
    assert 'href="/console/events/edge/%3Ci%3Ee1%3C%2Fi%3E%E2%80%AE"' in shown.text
    assert ("<i>e1" in shown.text, "\u202e" in shown.text) == (False, False)
    owner = await one.get("/console/parts/EventSubscription%2Fclaims")
    assert owner.url == "/console/parts?owner=EventSubscription%2Fclaims"
    asked = await one.get(f"/console/do/dynamic.delete?source={quote(source)}")
    assert "IPv4Route claim-10-0-0-9 ends." in asked.text
    done = await one.post("/console/do/dynamic.delete", source=source, asked="yes", back="/console/parts")
    assert "The part is deleted." in done.text
    assert (await one.get(url)).status == 404
    assert (await one.get("/console/do/dynamic.delete")).status == 404


async def test_a_key_of_some_groups_learns_why_it_sees_no_part(site: Site, browser: MakeBrowser) -> None:
    one = browser(site)
    await one.sign_in(EDGE)
    for page in ("parts", "parts/effective"):
        answer = await one.get(f"/console/{page}")
        assert (answer.status, "limited to some groups" in answer.text) == (200, True)
