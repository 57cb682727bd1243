"""What each page must keep: it fits the window, works by keyboard, and breaks no rule of WCAG that axe can check."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Page

WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
_MOST_STEPS = 400
_WIDER = """() => {
    const wide = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
        && !one.closest(".wide, pre, svg, .hidden, .skip") && one.getBoundingClientRect().right > innerWidth + 1);
    return document.documentElement.scrollWidth > innerWidth
        ? ["the page scrolls sideways", ...wide.map((one) => one.outerHTML.slice(0, 120))]
        : wide.map((one) => one.outerHTML.slice(0, 120));
}"""
_TARGETS = """() => [...document.querySelectorAll("button, .button, select, input, nav a, summary")].filter((one) =>
    one.checkVisibility() && one.type !== "hidden").map((one) => [one, (one.labels?.[0] ?? one).getBoundingClientRect(),
    one.getBoundingClientRect()]).filter(([, label, own]) => Math.max(label.height, own.height) < 23.5
    || Math.max(label.width, own.width) < 23.5).map(([one]) => one.outerHTML.slice(0, 120))"""
_NUMBER_FOCUSABLE = """() => { window.walked = new WeakMap(); return [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")].filter((one) =>
    !one.disabled && one.checkVisibility({ visibilityProperty: true }) && !one.closest("[inert]")
    && !(one.closest("details:not([open])") && one.tagName !== "SUMMARY"))
    .map((one, number) => { walked.set(one, String(number)); return one.outerHTML.slice(0, 120); }); }"""
_FOCUSED = """() => {
    const one = document.activeElement;
    if (!one || one === document.body || one === document.documentElement) return null;
    const box = one.getBoundingClientRect(), style = getComputedStyle(one);
    const [x, y] = [Math.min(box.left + 4, innerWidth - 1), box.top + Math.min(box.height / 2, 20)];
    const top = document.elementFromPoint(Math.max(x, 0), y);
    return [walked.get(one) ?? one.outerHTML, one.outerHTML.slice(0, 120),
        Boolean(top) && (one.contains(top) || top.contains(one)),
        style.outlineStyle !== "none" || style.boxShadow !== "none"];
}"""


def find_violations(page: Page, *, only: Sequence[str] = ()) -> list[str]:
    """Return what axe finds against WCAG 2.2 AA, or against these rules only. The visitor must bypass the policy."""
    axe: Any = importlib.import_module("axe_playwright_python.sync_playwright")
    chosen = {"type": "rule", "values": list(only)} if only else {"type": "tag", "values": list(WCAG)}
    found = axe.Axe().run(page, options={"resultTypes": ["violations"], "runOnly": chosen}).response["violations"]
    return [f"{one['id']}: {one['help']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


def find_wide(page: Page) -> list[str]:
    """Return what does not fit the width of the window. Tables and code scroll in boxes of their own."""
    wide: list[str] = page.evaluate(_WIDER)
    return wide


def find_small(page: Page) -> list[str]:
    """Return what is smaller than 24 × 24 pixels and can be pressed."""
    small: list[str] = page.evaluate(_TARGETS)
    return small


class KeyboardWalk(NamedTuple):
    """What the Tab key reached on a page. `hidden`: under something else; `unmarked`: without a visible focus."""

    reached: list[str]
    missed: list[str]
    hidden: list[str]
    unmarked: list[str]


def walk_by_tab(page: Page) -> KeyboardWalk:
    """Press Tab from the beginning of a page to its end."""
    wanted: list[str] = page.evaluate(_NUMBER_FOCUSABLE)
    page.evaluate("getSelection().removeAllRanges(); document.activeElement.blur(); scrollTo(0, 0)")
    reached: dict[str, str] = {}
    hidden, unmarked = [], []
    for _ in range(_MOST_STEPS):
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        if focused is None or focused[0] in reached:
            break
        number, text, is_on_top, is_marked = focused
        reached[number] = text
        hidden += [text] if not is_on_top else []
        unmarked += [text] if not is_marked else []
    missed = [text for number, text in enumerate(wanted) if str(number) not in reached]
    return KeyboardWalk(list(reached.values()), missed, hidden, unmarked)
