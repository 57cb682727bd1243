"""Settings from files: TOML, YAML, and files that hold a secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eventd.settings.loading import load
from eventd.settings.problems import BadSettings


def problems_of(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        load(flags, environ or {}, file)
    return [str(problem) for problem in caught.value.problems]


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_flag_comes_before_a_variable_before_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "c.toml", 'group = "file"\nlog_level = "error"\ndrain_timeout = "1s"\n')
    settings = load({"group": "flag"}, {"EVENTD_GROUP": "variable", "EVENTD_LOG_LEVEL": "debug"}, file)
    assert (settings.group, settings.log_level, settings.drain_timeout) == ("flag", "debug", 1.0)
    origins = [settings.origin(name) for name in ("group", "log_level", "drain_timeout", "log_format")]
    assert origins == ["--group", "EVENTD_LOG_LEVEL", f"{file}:3: drain_timeout", "default"]


def test_the_file_is_named_by_a_variable(tmp_path: Path) -> None:
    file = written(tmp_path, "c.yaml", "group: edge\n")
    assert load({}, {"EVENTD_CONFIG": str(file)}).group == "edge"


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    toml = written(tmp_path, "c.toml", 'data_dir = "/d"\nallow_insecure_no_auth = true\nmax_body_bytes = 4096\n')
    yaml = written(tmp_path, "c.yml", "data_dir: /d\nallow_insecure_no_auth: true\nmax_body_bytes: 4096\n")
    assert load({}, {}, toml).model_dump() == load({}, {}, yaml).model_dump()


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert load({}, {}, written(tmp_path, "c.yaml", "# all defaults\n")).model_dump() == load({}, {}).model_dump()


def test_all_problems_are_told_at_once_each_with_its_origin(tmp_path: Path) -> None:
    file = written(tmp_path, "c.toml", 'log_levl = "info"\ndrain_timeout = 5\nport_file = 7\n')
    environ = {"EVENTD_API_LISTEN": "8780", "EVENTD_MAX_BODY_BYTES": "lots"}
    assert sorted(problems_of({"log_format": "xml"}, environ, file)) == sorted(
        [
            f"{file}:1: log_levl: there is no such setting (did you mean log_level?)",
            f"{file}:2: drain_timeout: '5' is not a duration; write 30s, 5m or 168h (a unit is missing: 5s?)",
            f"{file}:3: port_file: must be text, not 7: put it in quotes",
            "EVENTD_API_LISTEN: '8780' is not an address: write HOST:PORT, such as 127.0.0.1:8780 or [::1]:8780",
            "EVENTD_MAX_BODY_BYTES: 'lots' is not a size; write a number of bytes, or 512KiB, 8MiB or 1GiB",
            "--log-format: 'xml' is not one of auto, json, text",
        ]
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("c.toml", "a = ", "Invalid value (at end of document)"),
        ("c.yaml", "a: [", "is not valid YAML on line 1"),
        (
            "c.yaml",
            "a: !!int x",
            "is not valid YAML: a value is an impossible date, or not of the type that its tag names",
        ),
        (
            "c.yaml",
            "a: 2026-13-45",
            "is not valid YAML: a value is an impossible date, or not of the type that its tag names",
        ),
        (
            "c.yaml",
            "a: !!timestamp 2020-99-99",
            "is not valid YAML: a value is an impossible date, or not of the type that its tag names",
        ),
        ("c.yaml", "a: " + "[" * 30 + "]" * 30, "is nested more than 20 levels deep: settings need two"),
        ("c.yaml", "- a\n", "must hold one setting per line, as `name: value`"),
        ("c.json", "{}", "must end in .toml, .yaml or .yml, which names its format"),
    ],
)
def test_a_file_that_cannot_be_understood_is_named(tmp_path: Path, name: str, text: str, reason: str) -> None:
    file = written(tmp_path, name, text)
    assert problems_of(file=file) == [f"{file}: {reason}"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert problems_of(file=tmp_path / "no.toml") == [f"{tmp_path}/no.toml: cannot be read: No such file or directory"]


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(b"\xff\xfe")
    assert problems_of(file=file) == [f"{file}: is not UTF-8 text"]


def test_a_nested_or_systemd_only_setting_is_no_setting_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "c.toml", 'credentials_directory = "/x"\n[api]\nlisten = "x"\n')
    places = {problem.partition(": there is no such setting")[0] for problem in problems_of(file=file)}
    assert places == {f"{file}:1: credentials_directory", f"{file}:2: api"}


def test_the_database_url_comes_from_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, "url", "postgresql+psycopg://me:geheim@h/db\n")
    settings = load({}, {"EVENTD_DATABASE_URL_FILE": str(file)})
    assert settings.database_url == "postgresql+psycopg://me:geheim@h/db"
    assert settings.origin("database_url") == "EVENTD_DATABASE_URL_FILE"


def test_a_database_given_twice_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "url", "sqlite:////x.db")
    flags = {"database_url": "sqlite:////y.db", "database_url_file": str(file)}
    assert problems_of(flags) == [
        "--database-url-file: the database is also given by --database: leave one of them out"
    ]


def test_a_file_with_something_else_than_a_database_url_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of({"database_url_file": str(written(tmp_path, "url", "geheim"))})
    assert problem.startswith("--database-url-file: is not a database URL")
    assert "geheim" not in problem


def test_a_secret_is_read_from_the_credentials_directory(tmp_path: Path) -> None:
    written(tmp_path, "url", "sqlite:////x.db\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "EVENTD_DATABASE_URL_FILE": "credential:url"}
    assert load({}, environ).database_url == "sqlite:////x.db"


def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"/no cannot be read: No such file or directory"):
        load({}, {}).read_secret(str(tmp_path / "no"))
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        load({}, {}).read_secret(str(tmp_path / "bytes"))


def test_keys_in_a_file_may_be_a_list(tmp_path: Path) -> None:
    settings = load({}, {}, written(tmp_path, "c.toml", 'api_keys = ["a:r", "b"]\n'))
    assert settings.api_keys.get_secret_value() == "a:r\nb"
