"""The audit report in a real browser: it fits the window, loads nothing, obeys its policy, and works without
a mouse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from eventd.audit.report.html import render
from tests.support.audit_cases import MADE
from tests.support.browser import Tab, tab

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tab]:
    async with tab(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def written(name: str, directory: Path) -> Path:
    path = directory / "report.html"
    path.write_text(render(MADE[name]()), "utf-8")
    return path


FITS = """[document.documentElement.scrollWidth <= innerWidth,
    [...document.querySelectorAll('main *, header *')].filter(e =>
        !e.closest('.scroll, svg, figure') && e.getBoundingClientRect().right > innerWidth + 1
    ).map(e => e.outerHTML.slice(0, 120))]"""
CONTRAST = """(() => {
    const lum = c => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
        return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]); };
    const rgb = s => s.match(/[0-9.]+/g).map(Number);
    const ground = e => { for (; e; e = e.parentElement) {
        const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; }
        return [255, 255, 255]; };
    return [...document.querySelectorAll('h1, h2, h3, p, a, li, th, td, b, small, dt, dd, .sign, summary, caption')]
        .filter(e => e.checkVisibility() && e.textContent.trim().length > 1).map(e => {
            const [a, b] = [lum(rgb(getComputedStyle(e).color)), lum(ground(e))].sort((x, y) => y - x);
            return [(a + .05) / (b + .05), e.outerHTML.slice(0, 120)]; }).filter(([ratio]) => ratio < 4.5);
})()"""


async def test_the_page_fits_every_width_in_light_and_dark_and_asks_for_nothing(page: Tab, tmp_path: Path) -> None:
    for name in ("twenty nodes", "everything broken", "hostile names"):
        path = written(name, tmp_path)
        for width, dark in ((390, False), (820, True), (1280, False)):
            await page.open(path, width=width, dark=dark)
            assert await page.eval(FITS) == [True, []], (name, width)
            assert await page.eval(CONTRAST) == [], (name, width, "dark" if dark else "light")
    assert {url.split(":")[0] for url in page.requested} == {"file"}
    assert page.told == []


async def test_the_verdict_is_the_first_thing_and_can_be_seen_at_once(page: Tab, tmp_path: Path) -> None:
    await page.open(written("three missing", tmp_path))
    words, bottom = await page.eval(
        "(h => [h.innerText, h.getBoundingClientRect().bottom])(document.querySelector('h1'))"
    )
    assert words.startswith("9,999,997 of 10,000,000 delivered; 3 missing")
    assert bottom < 300
    order = await page.eval("[...document.querySelectorAll('h2')].map(h => h.innerText)")
    assert order[:3] == ["Findings", "Unproven", "Deliveries by source and peer"]


async def test_a_matrix_of_twenty_nodes_needs_no_scrolling_on_a_desk(page: Tab, tmp_path: Path) -> None:
    await page.open(written("twenty nodes", tmp_path))
    scrolled = "(f => [f.scrollWidth <= f.clientWidth + 1, f.querySelectorAll('tbody tr').length])"
    assert await page.eval(f"{scrolled}(document.querySelector('.matrix').parentElement)") == [True, 20]


async def test_nothing_a_name_says_is_done(page: Tab, tmp_path: Path) -> None:
    await page.open(written("hostile names", tmp_path))
    assert (
        await page.eval("document.scripts.length + document.querySelectorAll('[onload], iframe, object').length") == 0
    )
    assert "<script>alert(1)</script>" in await page.eval("document.querySelector('h1').innerText")
    assert await page.eval("document.body.innerText.includes('\\u202e')") is False


async def test_a_screen_reader_finds_its_way(page: Tab, tmp_path: Path) -> None:
    await page.open(written("everything broken", tmp_path))
    tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    roles = [node["role"]["value"] for node in tree if not node.get("ignored")]
    assert roles.count("main") == roles.count("banner") == roles.count("contentinfo") == 1
    for node in tree:
        if not node.get("ignored") and node["role"]["value"] in ("region", "image", "table", "navigation", "link"):
            assert node["name"]["value"].strip(), node
    cells = await page.eval("document.querySelectorAll('.matrix td.bad').length")
    assert cells
    assert {"rowheader", "columnheader", "table"} <= set(roles)


async def test_folds_and_frames_are_reached_by_the_tab_key(page: Tab, tmp_path: Path) -> None:
    await page.open(written("everything broken", tmp_path))
    seen = set()
    for _ in range(40):
        for kind in ("rawKeyDown", "keyUp"):
            await page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        seen.add(await page.eval("document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.skip", "A.", "DIV.scroll", "SUMMARY."} <= seen


async def test_print_shows_what_is_folded_and_keeps_its_colours(page: Tab, tmp_path: Path) -> None:
    await page.open(written("everything broken", tmp_path))
    await page.call("Emulation.setEmulatedMedia", media="print")
    look = "(fold => [fold.open, fold.querySelector('.ids').getBoundingClientRect().height > 0])"
    assert await page.eval(f"{look}(document.querySelector('td details'))") == [False, True]
    assert await page.eval("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert await page.eval("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len((await page.call("Page.printToPDF", printBackground=True))["data"]) > 50_000
