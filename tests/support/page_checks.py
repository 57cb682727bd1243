"""What each page must keep: it fits the window, works by keyboard, and breaks no rule of WCAG that axe can check."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.browser import WIDTHS, Visitor

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
_FAINT = """() => {
    const read = (colour) => { const [r, g, b, a = 1] = colour.match(/[0-9.]+/g).map(Number); return [r, g, b, a]; };
    const over = ([r, g, b, a], below) => [r, g, b].map((part, at) => part * a + below[at] * (1 - a));
    const chain = (one) => one ? [...chain(one.parentElement), getComputedStyle(one)] : [];
    const sheet = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
    const light = (colour) => { const [r, g, b] = colour.map((part) => (part /= 255) <= .03928 ? part / 12.92
        : ((part + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
    return [...document.body.querySelectorAll("*")].filter((one) => !one.closest("svg, [aria-disabled=true], :disabled")
        && (one.matches("input:not([type=hidden]), select, textarea")
            || [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
        && one.checkVisibility({ visibilityProperty: true, opacityProperty: true })).map((one) => {
            const styles = chain(one), style = styles.at(-1), size = parseFloat(style.fontSize);
            const back = styles.reduce((below, at) => over(read(at.backgroundColor), below), sheet);
            const [r, g, b, a] = read(style.color);
            const opaque = styles.reduce((left, at) => left * at.opacity, a);
            const [more, less] = [light(over([r, g, b, opaque], back)), light(back)].sort((x, y) => y - x);
            const needed = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
            return [(more + .05) / (less + .05) / needed, `${style.color} on ${back}: ${one.outerHTML.slice(0, 120)}`];
        }).filter(([share]) => share < 1).map(([, text]) => text);
}"""
_VIOLATIONS = "([part, options]) => axe.run(part || document, options).then((found) => found.violations)"
_PARTS = """() => [...new Set([...document.querySelectorAll("#main *")].map((one) => [one.tagName, one.type ?? "",
    ...["class", "role", "required"].map((name) => one.getAttribute(name))].join(" ")))].sort().join("\\n")"""
MAIN = "#main"
"""What differs from page to page: the frame around it has most of the places for the focus, and half of what axe looks
at."""
_WATCH_FOCUS = """(part) => {
    const begin = part ? document.querySelector(part) : document;
    const wanted = [...begin.querySelectorAll(
        "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")].filter((one) =>
        !one.disabled && one.checkVisibility({ visibilityProperty: true }) && !one.closest("[inert]")
        && !(one.closest("details:not([open])") && one.tagName !== "SUMMARY"));
    const walk = window.walk = { reached: new Map(), hidden: [], unmarked: [], ended: false, pressed: 0, noted: 0 };
    walk.note = () => {
        const one = document.activeElement, none = !one || one === document.body || one === document.documentElement;
        if (walk.noted === walk.pressed) return;
        walk.noted = walk.pressed;
        walk.ended ||= none || walk.reached.has(one);
        if (walk.ended) return;
        const box = one.getBoundingClientRect(), style = getComputedStyle(one), text = one.outerHTML.slice(0, 120);
        const [x, y] = [Math.min(box.left + 4, innerWidth - 1), box.top + Math.min(box.height / 2, 20)];
        const top = document.elementFromPoint(Math.max(x, 0), y);
        walk.reached.set(one, text);
        if (!top || !(one.contains(top) || top.contains(one))) walk.hidden.push(text);
        if (style.outlineStyle === "none" && style.boxShadow === "none") walk.unmarked.push(text);
    };
    walk.found = () => [[...walk.reached.values()],
        wanted.filter((one) => !walk.reached.has(one)).map((one) => one.outerHTML.slice(0, 120)),
        walk.hidden, walk.unmarked];
    addEventListener("keydown", () => { walk.note(); walk.pressed++; }, true);
    getSelection().removeAllRanges();
    if (part) begin.focus(); else document.activeElement.blur();
    scrollTo(0, 0);
    return wanted.length;
}"""
"""Before a press of Tab moves the focus, the page notes where the last press has led: to ask it after each press would
take as long as the press."""


def find_faults(page: Page, part: str = "") -> list[str]:
    """Return the faults of an open page in all windows, in light and in dark colours. See `with_axe`.

    axe looks only at the `part` with this selector, at the whole page without one, in the size and the colours that it
    has; afterwards they are those of a new visitor.
    """
    window = page.viewport_size
    found = [f"light: {one}" for one in find_violations(page, part)]
    page.emulate_media(color_scheme="dark")
    found += [f"dark, too little contrast: {one}" for one in find_faint(page)]
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        found += [f"{width} wide, does not fit: {one}" for one in find_wide(page)]
    found += [f"too small to press: {one}" for one in find_small(page)]
    page.emulate_media(color_scheme="light")
    if window:
        page.set_viewport_size(window)
    return found


def with_axe(visitor: Visitor) -> Visitor:
    """Load axe with each page of a visitor, whatever the policy of the page forbids; return the visitor.

    The browser compiles its 500 kB once. Loaded when it is used, it would be sent and compiled for each page.
    """
    axe: Any = importlib.import_module("axe_playwright_python.sync_playwright")
    visitor.context.add_init_script(axe.Axe().axe_script)
    return visitor


def find_violations(page: Page, part: str = "") -> list[str]:
    """Return what axe finds against WCAG 2.2 AA, on the page or only in a part of it. See `with_axe`."""
    chosen = {"type": "tag", "values": list(WCAG)}
    found = page.evaluate(_VIOLATIONS, [part, {"resultTypes": ["violations"], "runOnly": chosen}])
    return [f"{one['id']}: {one['help']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


def find_faint(page: Page) -> list[str]:
    """Return the texts whose contrast with what is behind them is below that of WCAG 2.2 AA.

    The rule of axe finds the same, at several times the cost: enough for one of two colour schemes of a page.
    """
    faint: list[str] = page.evaluate(_FAINT)
    return faint


def read_parts(page: Page) -> str:
    """Return what the main part of an open page is made of: each combination of tag, type, class and role once."""
    parts: str = page.evaluate(_PARTS)
    return parts


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


def walk_by_tab(page: Page, part: str = "") -> KeyboardWalk:
    """Press Tab from the beginning of a page, or of the part with this selector, to the end of the page."""
    wanted: int = page.evaluate(_WATCH_FOCUS, part)
    for step in range(_MOST_STEPS):
        page.keyboard.press("Tab")
        if step >= wanted and page.evaluate("walk.note(), walk.ended"):
            break
    return KeyboardWalk(*page.evaluate("walk.found()"))
