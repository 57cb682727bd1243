"""The settings of the console."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, Field

from eventd.settings.routemaster import read_networks
from eventd.settings.values import AnyPath, Switch
from eventd.text.quoting import quoted

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def _read_prefix(value: Any) -> str:
    text = str(value).strip().rstrip("/")
    if text and not _PREFIX.fullmatch(text):
        raise ValueError(f"{quoted(value)} is not a path such as /site-a")
    return text


def _read_metrics_url(value: Any) -> str:
    text = str(value).strip()
    if text and not _is_web_address(text):
        raise ValueError(f"{quoted(value)} is not http://HOST/… or https://HOST/… without a user name")
    return text


def _is_web_address(text: str) -> bool:
    """Return whether a text is a URL of HTTP without a user; a wrong port may be the beginning of a password."""
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except ValueError:
        return False


class ConsoleSettings(BaseModel):
    """The settings of the console, each with its default."""

    console: Switch = Field(True, description="Serve the console under /console/ of the API's listener.")
    console_prefix: Annotated[str, BeforeValidator(_read_prefix)] = Field(
        "", description="Path before /console/ at which a proxy serves the console, such as `/site-a`."
    )
    console_trusted_proxies: Annotated[str, BeforeValidator(read_networks)] = Field(
        "",
        description="Addresses and networks of proxies whose `X-Forwarded-Proto` and `X-Forwarded-For` count for the"
        " console, separated by commas. Of each header the last entry counts, which the proxy itself must append.",
    )
    console_metrics_url: Annotated[str, BeforeValidator(_read_metrics_url)] = Field(
        "",
        description="URL of longer histories, to which charts link; `{group}` and `{peer}` in it are replaced.",
    )
    audit_reports: AnyPath = Field(
        None,
        description="Folder in which each folder is a report that `routerctl audit run --out` has written: the console"
        " shows them.",
    )
    max_console_streams: int = Field(
        100, ge=0, le=10_000, description="Maximum pages of the console that a process keeps up to date by streams."
    )
