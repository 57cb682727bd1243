"""Loads the settings: flags override the environment, which overrides the file, which overrides the defaults.

Only this module, `environment` and the options of `routerctl` read environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from eventd.settings.environment import DATABASE_FILE
from eventd.settings.file import SIMILAR, read_file
from eventd.settings.model import Settings, flag_of, variable_of
from eventd.settings.problems import BadSettings, SettingProblem
from eventd.settings.routemaster import reference_values
from eventd.settings.values import read_database, rights_of_others
from eventd.text.did_you_mean import did_you_mean
from eventd.text.quoting import with_value
from eventd.text.validation import message_of

_NOT_SETTINGS = (
    *("EVENTD_CONFIG", "EVENTD_CONTEXT", "EVENTD_SERVER", "EVENTD_API_KEY", "EVENTD_API_KEY_FILE", "EVENTD_CA_FILE"),
    *("EVENTD_CLIENT_CERT_FILE", "EVENTD_CLIENT_KEY_FILE", "EVENTD_SERVER_NAME", "EVENTD_SERVER_PIN"),
    *("EVENTD_STREAM_SERVER", "EVENTD_STREAM_TOKEN_FILE", "EVENTD_STREAM_CA_FILE"),
)
"""Variables with this program's prefix that are not settings: the path of the settings file, and what `routerctl`
reads."""


def load(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> Settings:
    """Return the settings. `flags` are by setting name; None is a flag that was not given.

    If `file` is None, EVENTD_CONFIG may name it.
    Raises `BadSettings` with every problem found, each with its origin.
    """
    environ = os.environ if environ is None else environ
    problems: list[SettingProblem] = []
    values: dict[str, tuple[Any, str]] = {}  # value and origin; stronger sources replace weaker ones
    if file is None and environ.get("EVENTD_CONFIG", "").strip():
        file = Path(environ["EVENTD_CONFIG"])
    if file is not None:
        values |= read_file(file, problems)
    names = Settings.model_fields
    values |= {
        name: (environ[key], key) for name in names if (key := variable_of(name)) and environ.get(key, "").strip()
    }
    values |= {name: (value, flag_of(name) or name) for name, value in (flags or {}).items() if value is not None}
    values = reference_values(environ, {name: value for name, (value, _) in values.items()}) | values
    settings = _validate(values, environ, problems)
    if problems:
        raise BadSettings(problems)
    return settings


def _validate(
    given: Mapping[str, tuple[Any, str]], environ: Mapping[str, str], problems: list[SettingProblem]
) -> Settings:
    """Return the settings of these values and origins, with the default for each invalid one; adds to `problems`."""
    values = {name: value for name, (value, _) in given.items()}
    origins = {name: origin for name, (_, origin) in given.items()}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        for detail in error.errors():
            name = str(detail["loc"][0])
            reason = with_value(message_of(detail["type"], detail.get("ctx", {})), detail["input"], name)
            problems.append(SettingProblem(origins[name], reason, usage=origins[name].startswith("--")))
            values.pop(name, None)
        settings = Settings.model_validate(values)
    problems += _tls_problems(settings, origins)
    url = _database_url(settings, origins, problems)
    settings = settings.model_copy(update={"data_dir": settings.data_dir.absolute(), "database_url": url})
    settings.note(origins, (*_unknown_variables(environ), *_open_secrets(settings)))
    return settings


def _tls_problems(settings: Settings, origins: Mapping[str, str]) -> Iterator[SettingProblem]:
    """Yield a problem for each setting of TLS that has no effect because another one is missing."""
    needed = {
        "api_tls_key_file": "api_tls_cert_file",
        "api_tls_cert_file": "api_tls_key_file",
        "api_tls_client_ca_file": "api_tls_cert_file",
        "api_clients": "api_tls_client_ca_file",
        "routemaster_tls_key": "routemaster_tls_cert",
        "routemaster_tls_cert": "routemaster_tls_key",
        "quic_key_file": "quic_cert_file",
        "quic_cert_file": "quic_key_file",
    }
    for name, other in needed.items():
        if getattr(settings, name) and not getattr(settings, other):
            message = f"{name} needs {other} as well"
            yield SettingProblem(origins.get(name, name), message, usage=origins.get(name, "").startswith("--"))


def _database_url(settings: Settings, origins: dict[str, str], problems: list[SettingProblem]) -> str:
    if not settings.database_url_file:
        path = str(settings.data_dir.absolute() / DATABASE_FILE).replace("%", "%25").replace("?", "%3F")
        return settings.database_url or f"sqlite:///{path}"
    origin = origins["database_url_file"]
    try:
        if settings.database_url:
            raise ValueError(f"the database is also given by {origins['database_url']}: leave one of them out")
        url = read_database(settings.read_secret(settings.database_url_file))
    except ValueError as error:
        problems.append(SettingProblem(origin, str(error)))
        return ""
    origins["database_url"] = origin
    return url


def _open_secrets(settings: Settings) -> Iterator[str]:
    """Yield a warning for each secret file that every user of the machine may read or change."""
    for name in (settings.api_keys_file, settings.database_url_file, settings.routemaster_root_key_file):
        with suppress(OSError, ValueError):  # reported where it is read
            file = settings.place_of_secret(name) if name else None
            if file is not None and (rights := rights_of_others(file.stat().st_mode)):
                yield f"every user of this machine may {rights} {file}: run chmod o= {file}"


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    known = [*map(variable_of, Settings.model_fields), *_NOT_SETTINGS]
    for name in sorted(environ):
        if name.startswith("EVENTD_") and name not in known:
            meant = did_you_mean(name, known, SIMILAR)
            yield f"{name} is not a setting{f' ({meant})' if meant else ''}"
