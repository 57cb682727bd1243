"""Variables that programs read before, or without, loading the settings. Imports nothing slow."""

from __future__ import annotations

import os
from collections.abc import Mapping

DATA_DIR = "eventd-data"
"""The default of the setting `data_dir`."""
DATABASE_FILE = "eventd.db"
"""The SQLite file in the data folder, unless a setting names another database."""
_OF_LOCATIONS = (
    "EVENTD_CONFIG",
    "EVENTD_DATA_DIR",
    "EVENTD_DATABASE_URL",
    "EVENTD_DATABASE_URL_FILE",
    "EVENTD_LOCAL_SOCKET",
)
_OF_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGOPTIONS")
_OF_PROBES = (
    *("EVENTD_SERVER", "EVENTD_API_KEY", "EVENTD_API_KEY_FILE"),
    *("EVENTD_CA_FILE", "EVENTD_CLIENT_CERT_FILE", "EVENTD_CLIENT_KEY_FILE"),
    *("EVENTD_DATA_DIR", "EVENTD_API_LISTEN"),
)


def skip_plugins() -> None:
    """Keep pydantic from searching all installed packages for plugins of its own: that takes 10 ms, and finds none."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def probe_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that name the node to probe, and how to authenticate; without those that are empty."""
    environ = os.environ if environ is None else environ
    return {name: environ[name].strip() for name in _OF_PROBES if environ.get(name, "").strip()}


def location_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that locate the node on this machine, and its database; without those that are empty."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in _OF_LOCATIONS if environ.get(name, "").strip()}


def redirects_postgres(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a variable of libpq may select another Postgres database for the same URL."""
    environ = os.environ if environ is None else environ
    return any(environ.get(name) for name in _OF_LIBPQ)
