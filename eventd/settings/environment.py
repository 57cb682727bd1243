"""The environment apart from the settings: variables that locate a node, and the environments of child processes.

Imports nothing slow.
"""

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
ROUTEMASTER_SECRETS = ("ROUTEMASTER_ROOT_KEY", "ROUTEMASTER_CLIENTS")
"""Variables with secrets of the Routemaster surface: the workers and the lake process of a node do not get them."""
_OF_LIBPQ = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGOPTIONS")
_OF_PROBES = (
    *("EVENTD_SERVER", "EVENTD_API_KEY", "EVENTD_API_KEY_FILE"),
    *("EVENTD_CA_FILE", "EVENTD_CLIENT_CERT_FILE", "EVENTD_CLIENT_KEY_FILE"),
    *("EVENTD_DATA_DIR", "EVENTD_API_LISTEN"),
)


def skip_plugins() -> None:
    """Keep pydantic from searching all installed packages for plugins of its own: that takes 10 ms, and finds none."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def contexts_file(environ: Mapping[str, str] | None = None) -> str:
    """Return the file with the contexts of this user, which may not exist; empty without a home folder."""
    environ = os.environ if environ is None else environ
    named, home = environ.get("XDG_CONFIG_HOME", ""), environ.get("HOME", "")
    if os.path.isabs(named):  # others do not count
        return os.path.join(named, "routerctl", "contexts.yaml")
    return os.path.join(home, ".config", "routerctl", "contexts.yaml") if home else ""


def consoles_folder(environ: Mapping[str, str] | None = None) -> str:
    """Return the folder for the sockets of this user's consoles of many nodes, which may not exist: in the runtime
    folder, else beside the contexts; empty without these."""
    environ = os.environ if environ is None else environ
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        return os.path.join(runtime, "routerctl")
    return os.path.join(os.path.dirname(file), "consoles") if (file := contexts_file(environ)) else ""


def names_local_node(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a variable locates the node on this machine or its database."""
    return bool(location_environment(environ).keys() - {"EVENTD_LOCAL_SOCKET"})


def probe_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that name the node to probe, and how to authenticate; without those that are empty."""
    environ = os.environ if environ is None else environ
    return {name: environ[name].strip() for name in _OF_PROBES if environ.get(name, "").strip()}


def tracing_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of OpenTelemetry, which its SDK reads by itself, too."""
    environ = os.environ if environ is None else environ
    return {name: value for name, value in environ.items() if name.startswith("OTEL_")}


def location_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that locate the node on this machine, and its database; without those that are empty."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in _OF_LOCATIONS if environ.get(name, "").strip()}


def redirects_postgres(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a variable of libpq may select another Postgres database for the same URL."""
    environ = os.environ if environ is None else environ
    return any(environ.get(name) for name in _OF_LIBPQ)


def service_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the non-empty variables of the service manager and the terminal; none of them is a setting."""
    environ = os.environ if environ is None else environ
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "NO_COLOR", "TERM")
    return {name: environ[name] for name in names if environ.get(name)}


def plugin_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that every plugin gets in addition to the variables of its declaration: only `PATH`."""
    environ = os.environ if environ is None else environ
    return {"PATH": environ.get("PATH", "") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def editor_command(environ: Mapping[str, str] | None = None) -> str:
    """Return the command of the user's editor, as a shell would read it; empty if none is set."""
    environ = os.environ if environ is None else environ
    return environ.get("VISUAL", "").strip() or environ.get("EDITOR", "").strip()


def cache_folder(environ: Mapping[str, str] | None = None) -> str:
    """Return the folder of this user for routerctl's cached files, which may be deleted.

    Empty with neither XDG_CACHE_HOME nor a home folder.
    """
    environ = os.environ if environ is None else environ
    named, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    base = named or (os.path.join(home, ".cache") if home else "")
    return os.path.join(base, "routerctl") if base else ""


def java_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for finding Java, caching its launcher, and telling whether Spark started this process."""
    environ = os.environ if environ is None else environ
    names = ("JAVA_HOME", "PATH", "HOME", "XDG_CACHE_HOME", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR")
    return {name: environ[name] for name in names if environ.get(name)}


def unseeded_environment(scratch: str = "", environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a Python whose order of sets is the same in every process.

    `scratch`: the folder for its temporary files; empty: as here.
    """
    environ = os.environ if environ is None else environ
    return {**environ, "PYTHONHASHSEED": "0"} | ({"TMPDIR": scratch} if scratch else {})


def scratch_folder(environ: Mapping[str, str] | None = None) -> str:
    """Return the folder that is set for temporary files; empty if none is."""
    environ = os.environ if environ is None else environ
    return environ.get("TMPDIR", "")


def export_variables(values: Mapping[str, str]) -> None:
    """Set variables in the environment of this process, which a program started by a library inherits."""
    os.environ.update(values)


def worker_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a worker's environment: all but `service_environment`, and `EVENTD_…`, which its parent passes."""
    environ = os.environ if environ is None else environ
    return {
        name: value for name, value in lake_environment(environ).items() if name not in service_environment(environ)
    }


def lake_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of the process that ships to the lake: all but `EVENTD_…` and keys of Routemaster.

    The process needs the variables of object stores, with their addresses and keys.
    """
    environ = os.environ if environ is None else environ
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("EVENTD_") and name not in ROUTEMASTER_SECRETS
    }
