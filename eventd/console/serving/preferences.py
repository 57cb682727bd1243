"""What a visitor prefers: the theme, how times are written, and shortcuts.

Cookies keep it, so that the first paint is right.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

from aiohttp import web

from eventd.console.rendering.formats import TIMES, Times, TimeStyle, zone_named
from federation.event import from_micros

Theme = Literal["system", "light", "dark"]
THEMES: Final[tuple[Theme, ...]] = get_args(Theme)
_LONG: Final = 365 * 86_400
_LONGEST_ZONE: Final = 64


class Preferences(NamedTuple):
    """The choices of a visitor. `zone`: the name of the browser's time zone. `keys`: single keys are shortcuts."""

    theme: Theme = "system"
    times: Times = "relative"
    zone: str = ""
    keys: bool = True

    @classmethod
    def of(cls, request: web.Request) -> Preferences:
        """Return the preferences in the cookies of a request; the default for each that is missing or unknown."""
        given = request.cookies
        theme, times = given.get("eventd-theme", ""), given.get("eventd-times", "")
        zone = given.get("eventd-zone", "").replace("%2F", "/")
        return cls(
            theme if theme in THEMES else "system",
            times if times in TIMES else "relative",
            zone if len(zone) <= _LONGEST_ZONE else "",
            given.get("eventd-keys", "") != "off",
        )

    def style(self, now: int) -> TimeStyle:
        """Return how times are written at `now` (microseconds)."""
        return TimeStyle(self.times, zone_named(self.zone), from_micros(now))


def set_preferences(response: web.StreamResponse, given: dict[str, str], *, secure: bool) -> None:
    """Set the cookies of the preferences that a form has."""
    known = {"theme": THEMES, "times": TIMES, "keys": ("on", "off")}
    for name, choices in known.items():
        if given.get(name) in choices:
            response.set_cookie(
                f"eventd-{name}", given[name], max_age=_LONG, path="/", secure=secure, httponly=False, samesite="Lax"
            )
