"""The audit report in a real browser: it fits the window, loads nothing, obeys its policy, and works without
a mouse."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.audit.report.html import render
from tests.support.audit_cases import MADE
from tests.support.browser import Visitor, Visitors

pytestmark = pytest.mark.browser


def written(name: str, directory: Path) -> str:
    """Write the report of this case; return its URL."""
    path = directory / "report.html"
    path.write_text(render(MADE[name]()), "utf-8")
    return path.as_uri()


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


def test_the_page_fits_every_width_in_light_and_dark_and_asks_for_nothing(visitors: Visitors, tmp_path: Path) -> None:
    for width, dark in ((390, False), (820, True), (1280, False)):
        visitor = visitors(width=width, dark=dark)
        for name in ("twenty nodes", "everything broken", "hostile names"):
            visitor.page.goto(written(name, tmp_path))
            assert visitor.page.evaluate(FITS) == [True, []], (name, width)
            assert visitor.page.evaluate(CONTRAST) == [], (name, width, "dark" if dark else "light")
        assert {url.split(":")[0] for url in visitor.requested} == {"file"}
        assert visitor.unexpected() == []


def test_the_verdict_is_the_first_thing_and_can_be_seen_at_once(visitor: Visitor, tmp_path: Path) -> None:
    visitor.page.goto(written("three missing", tmp_path))
    words, bottom = visitor.page.evaluate(
        "(h => [h.innerText, h.getBoundingClientRect().bottom])(document.querySelector('h1'))"
    )
    assert words.startswith("9,999,997 of 10,000,000 delivered; 3 missing")
    assert bottom < 300
    order = visitor.page.locator("h2").all_inner_texts()
    assert order[:3] == ["Findings", "Unproven", "Deliveries by source and peer"]


def test_a_matrix_of_twenty_nodes_needs_no_scrolling_on_a_desk(visitor: Visitor, tmp_path: Path) -> None:
    visitor.page.goto(written("twenty nodes", tmp_path))
    scrolled = "(f => [f.scrollWidth <= f.clientWidth + 1, f.querySelectorAll('tbody tr').length])"
    assert visitor.page.evaluate(f"{scrolled}(document.querySelector('.matrix').parentElement)") == [True, 20]


def test_nothing_a_name_says_is_done(visitor: Visitor, tmp_path: Path) -> None:
    visitor.page.goto(written("hostile names", tmp_path))
    assert visitor.page.locator("script, [onload], iframe, object").count() == 0
    assert "<script>alert(1)</script>" in visitor.page.locator("h1").inner_text()
    assert "\u202e" not in visitor.page.locator("body").inner_text()


def test_a_screen_reader_finds_its_way(visitor: Visitor, tmp_path: Path) -> None:
    visitor.page.goto(written("everything broken", tmp_path))
    devtools = visitor.context.new_cdp_session(visitor.page)
    tree = devtools.send("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in tree if not node.get("ignored")]
    assert roles.count("main") == roles.count("banner") == roles.count("contentinfo") == 1
    for node in tree:
        if not node.get("ignored") and node["role"]["value"] in ("region", "image", "table", "navigation", "link"):
            assert node["name"]["value"].strip(), node
    assert visitor.page.locator(".matrix td.bad").count()
    assert {"rowheader", "columnheader", "table"} <= set(roles)


def test_folds_and_frames_are_reached_by_the_tab_key(visitor: Visitor, tmp_path: Path) -> None:
    visitor.page.goto(written("everything broken", tmp_path))
    seen = set()
    for _ in range(40):
        visitor.page.keyboard.press("Tab")
        seen.add(visitor.page.evaluate("document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.skip", "A.", "DIV.scroll", "SUMMARY."} <= seen


def test_print_shows_what_is_folded_and_keeps_its_colours(visitor: Visitor, tmp_path: Path) -> None:
    visitor.page.goto(written("everything broken", tmp_path))
    visitor.page.emulate_media(media="print")
    look = "(fold => [fold.open, fold.querySelector('.ids').getBoundingClientRect().height > 0])"
    assert visitor.page.evaluate(f"{look}(document.querySelector('td details'))") == [False, True]
    assert visitor.page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert visitor.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(visitor.page.pdf(print_background=True)) > 37_500
