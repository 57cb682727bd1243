"""The node on this machine is located as the settings locate it; whatever is unusual is left to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from eventd.settings.identity import identify_file, identify_server
from eventd.settings.loading import load
from eventd.settings.location import NodeLocation, locate
from eventd.store.engine.database import Database


def made(folder: Path, name: str = "eventd.db") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    return folder / name


def required(found: NodeLocation | None) -> NodeLocation:
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("flags", "environ", "config"),
    [
        ({}, {}, ""),
        ({"data_dir": "one"}, {"EVENTD_DATA_DIR": "two"}, ""),
        ({}, {"EVENTD_DATA_DIR": " two "}, ""),
        ({}, {"EVENTD_DATA_DIR": " "}, "data_dir: three"),
        ({"database_url": "sqlite:///four/own.db"}, {"EVENTD_DATABASE_URL": "sqlite:///five/own.db"}, ""),
        ({}, {"EVENTD_DATABASE_URL": "sqlite:///five/own.db", "EVENTD_DATA_DIR": "two"}, "data_dir: three"),
        ({}, {}, "database_url: sqlite:///four/own.db\nlocal_socket: yes"),
        ({}, {"EVENTD_DATABASE_URL_FILE": "url"}, ""),
    ],
)
def test_the_settings_agree(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    config: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("eventd-data", "one", "two", "three"):
        made(tmp_path / folder)
    for folder in ("four", "five"):
        made(tmp_path / folder, "own.db")
    (tmp_path / "url").write_text("sqlite:///five/own.db\n")
    if config:
        (tmp_path / "node.yaml").write_text(config)
        environ = {**environ, "EVENTD_CONFIG": "node.yaml"}
    settings = load(flags, environ)
    database = Database(settings.database_url)
    database.close()
    assert database.path is not None
    found = required(locate(**flags, environ=environ))
    assert found.identity == identify_file(database.path)
    assert (found.folders[0], found.file) == (settings.data_dir, database.path.absolute())
    assert found.folders[1:] == (() if found.file.parent == settings.data_dir else (found.file.parent,))


def test_toml_names_the_folder_too(tmp_path: Path) -> None:
    made(tmp_path / "data")
    (tmp_path / "node.toml").write_text(f"data_dir = '{tmp_path}/data'\nworkers = 2\n")
    found = required(locate(environ={"EVENTD_CONFIG": f"{tmp_path}/node.toml"}))
    assert found.folders == (tmp_path / "data",)


@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        ({"data_dir": "missing"}, {}),
        ({"data_dir": " "}, {}),
        ({"database_url": "sqlite:///a%20b.db"}, {}),
        ({"database_url": "sqlite:///x.db?mode=ro"}, {}),
        ({"database_url": "sqlite://"}, {}),
        ({"database_url": "mysql://host/name"}, {}),
        ({"database_url": "sqlite:///x.db"}, {"EVENTD_DATABASE_URL_FILE": "url"}),
        ({}, {"EVENTD_DATABASE_URL_FILE": "credential:url"}),
        ({}, {"EVENTD_DATABASE_URL_FILE": "missing"}),
        ({}, {"EVENTD_CONFIG": "missing.yaml"}),
        ({}, {"EVENTD_CONFIG": "wrong.yaml"}),
        ({}, {"EVENTD_CONFIG": "wrong.toml"}),
        ({}, {"EVENTD_CONFIG": "list.yaml"}),
        ({}, {"EVENTD_LOCAL_SOCKET": "off"}),
        ({}, {"EVENTD_LOCAL_SOCKET": "perhaps"}),
        ({"database_url": "postgresql://me@host/name"}, {"PGPORT": "5433"}),
    ],
)
def test_what_is_unusual_or_wrong_is_left_to_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: Mapping[str, str], environ: Mapping[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "eventd-data")
    for name, text in {
        "wrong.yaml": "a: [",
        "wrong.toml": "a = [",
        "list.yaml": "- a",
        "url": "sqlite:///x.db",
    }.items():
        (tmp_path / name).write_text(text)
    for name in ("a%20b.db", "x.db"):
        (tmp_path / name).touch()
    assert locate(**flags, environ=environ) is None


def test_one_file_has_one_identity(tmp_path: Path) -> None:
    file = made(tmp_path)
    os.link(file, tmp_path / "hard")
    (tmp_path / "soft").symlink_to(file)
    assert {identify_file(tmp_path / name) for name in ("eventd.db", "hard", "soft")} == {identify_file(file)}
    assert identify_file(made(tmp_path, "other.db")) != identify_file(file)
    assert identify_file(tmp_path / "missing") == ""


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me@db.example/events",
        "postgres://me:secret@db.example:5432/events",
        "postgresql://me@DB.example/events?password=x",
    ],
)
def test_one_postgres_database_has_one_identity(url: str) -> None:
    identity = identify_server("postgresql://me@db.example/events", {})
    assert identify_server(url, {}) == identity
    assert identity.startswith("postgres:")
    assert "example" not in identity


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@db.example:5433/events",
        "postgresql://me@other.example/events",
        "postgresql://you@db.example/events",
        "postgresql://me@db.example/other",
        "postgresql://me@db.example/events?options=-csearch_path%3Dmine",
    ],
)
def test_another_postgres_database_has_another_identity(url: str) -> None:
    assert identify_server(url, {}) not in ("", identify_server("postgresql://me@db.example/events", {}))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example/events",
        "postgresql://me@db.example",
        "postgresql://me@db.example:many/events",
        "postgresql://me@db.example/events?service=x",
    ],
)
def test_a_database_that_depends_on_more_than_the_url_has_none(url: str) -> None:
    assert identify_server(url, {}) == ""
    assert identify_server("postgresql://me@db.example/events", {"PGHOSTADDR": "10.0.0.1"}) == ""
