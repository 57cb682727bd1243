"""The configuration of the surface from the node's settings, checked before the surface starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventd.api.routemaster.surface import SurfaceConfig
from eventd.log.routemaster.names import is_token
from eventd.log.routemaster.surface_topic import surface_topic_config
from eventd.log.routemaster.tokens import NewToken
from eventd.settings.model import Settings
from eventd.settings.problems import BadSettings, SettingProblem
from eventd.settings.routemaster import networks_of
from eventd.settings.values import entries_of

LEAST_KEY: Final = 16
"""Minimum number of characters of the administrator's key."""
_EXAMPLE: Final = "CHANGE-ME"
UNNAMED: Final = "client"
"""The name of a token of the settings that contains no name. In a token with a name, the name stands before `--`; the
rest is secret."""


def config_of(settings: Settings) -> SurfaceConfig:
    """Return the configuration of the surface."""
    return SurfaceConfig(
        require_tls=settings.routemaster_require_tls,
        public_url=settings.routemaster_public_url,
        proxies=networks_of(settings.routemaster_trusted_proxies),
        max_event_data=settings.routemaster_max_event_data,
        scaling_threshold=settings.routemaster_scaling_threshold,
        scaling_deadline=settings.routemaster_scaling_deadline,
        empty_list=settings.routemaster_empty_list == "200",
        topic=surface_topic_config(cap_bytes=settings.routemaster_mark, discard=settings.routemaster_discard),
        max_bytes=settings.max_total_bytes,
    )


def read_root_key(settings: Settings) -> str:
    """Return the administrator's key, of the settings or of its file; empty without one. Raises `BadSettings`."""
    name = "routemaster_root_key"
    key = settings.routemaster_root_key.get_secret_value().strip()
    if file := settings.routemaster_root_key_file:
        if key:
            _refuse(settings, name, f"the key is also given by {settings.origin(f'{name}_file')}: leave one out")
        name = f"{name}_file"
        try:
            key = settings.read_secret(file)
        except ValueError as error:
            _refuse(settings, name, str(error))
        if not key:
            _refuse(settings, name, f"{file} is empty")
    if not key:
        return ""
    if key == _EXAMPLE:
        _refuse(settings, name, f"{_EXAMPLE} is the example of the documentation: choose another key")
    if len(key) < LEAST_KEY:
        _refuse(settings, name, f"the key has {len(key)} characters: choose one of at least {LEAST_KEY}")
    if ":" in key or not key.isprintable():
        _refuse(settings, name, "the key contains a colon or a control character, which no user name can contain")
    return key


def read_clients(settings: Settings) -> list[NewToken]:
    """Return the tokens of the settings. Raises `BadSettings`, which names a wrong one by its number."""
    return [*_clients(settings)]


def _clients(settings: Settings) -> Iterator[NewToken]:
    for number, token in enumerate(entries_of(settings.routemaster_clients.get_secret_value()), start=1):
        if not is_token(token):
            words = f"entry {number} is not a token: use at most 64 of a-z, 0-9, :, _ and -"
            _refuse(settings, "routemaster_clients", words)
        name, mark, _ = token.partition("--")
        yield NewToken(name if name and mark else UNNAMED, token)


def _refuse(settings: Settings, name: str, words: str) -> None:
    raise BadSettings([SettingProblem(settings.origin(name), words)])
