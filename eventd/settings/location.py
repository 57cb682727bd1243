"""Finds the folder and the database of the node on this machine without loading the settings, which is slow.

Only the few settings that name them are read. Whatever is unusual, or wrong, is left to `eventd.settings.loading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eventd.settings.environment import DATA_DIR, DATABASE_FILE, location_environment
from eventd.settings.identity import identify
from eventd.text.credential import CREDENTIAL
from eventd.text.database_url import POSTGRES_SCHEMES

MAX_BYTES = 1 << 20
_NAMES = ("data_dir", "database_url", "database_url_file", "local_socket")
_ON = ("1", "true", "yes", "on")
_SQLITE = "sqlite:///"


class _Unusual(Exception):
    """A setting has a form that only `eventd.settings.loading` can read, or report as a problem."""


class NodeLocation(NamedTuple):
    """The folders in which the node's socket may be, and the identity of the database that the node must serve.

    `file`: the database, if it is a SQLite file.
    """

    folders: tuple[Path, ...]
    identity: str
    file: Path | None


def locate(
    data_dir: str | None = None, database_url: str | None = None, environ: Mapping[str, str] | None = None
) -> NodeLocation | None:
    """Return where the node of these flags and the environment is.

    None if the local socket is not to be used, or if the database cannot be identified without opening it.
    """
    try:
        values = _read_values({"data_dir": data_dir, "database_url": database_url}, location_environment(environ))
        if str(values.get("local_socket", "on")).strip().lower() not in _ON:
            return None
        folder = _path(values.get("data_dir", DATA_DIR))
        url = _database_url(values)
        file = _sqlite_file(url) if url else folder / DATABASE_FILE
        identity = identify(url, file, environ)
    except (_Unusual, OSError, ValueError, RuntimeError):
        return None
    folders = (folder,) if file is None or file.parent == folder else (folder, file.parent)
    return NodeLocation(folders, identity, file) if identity else None


def _read_values(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of `_NAMES` that are given: flags override the environment, which overrides the file."""
    values: dict[str, Any] = {}
    if "EVENTD_CONFIG" in environ:
        content = _read_file(Path(environ["EVENTD_CONFIG"]))
        values |= {name: content[name] for name in _NAMES if name in content}
    variables = {name: environ.get(f"EVENTD_{name.upper()}", "") for name in _NAMES}
    values |= {name: value for name, value in variables.items() if value}
    return values | {name: value for name, value in flags.items() if value is not None}


def _read_file(path: Path) -> Mapping[str, Any]:
    text = _read_text(path)
    if path.suffix == ".toml":
        import tomllib

        return tomllib.loads(text)
    import yaml

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, AttributeError, LookupError):
        raise _Unusual from None
    if not isinstance(content, dict):
        raise _Unusual
    return content


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _Unusual
    return content.decode()


def _path(value: Any) -> Path:
    return Path(_text(value)).expanduser().absolute()


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _Unusual
    return value.strip()


def _database_url(values: Mapping[str, Any]) -> str:
    """Return the URL of the database; empty for the file in the data folder."""
    if "database_url_file" not in values:
        return _text(values["database_url"]) if "database_url" in values else ""
    name = _text(values["database_url_file"])
    if "database_url" in values or name.startswith(CREDENTIAL):
        raise _Unusual
    return _text(_read_text(Path(name).expanduser()))


def _sqlite_file(url: str) -> Path | None:
    """Return the file that a URL names; None for one of Postgres."""
    if url.startswith(POSTGRES_SCHEMES):
        return None
    name = url.removeprefix(_SQLITE)
    if name == url or not name or any(sign in name for sign in "%?#:"):
        raise _Unusual
    return Path(name).absolute()
