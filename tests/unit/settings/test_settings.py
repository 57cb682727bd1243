"""Settings: the order of precedence, every problem with its origin, and that no secret is shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eventd.settings.environment import lake_environment, plugin_environment, service_environment
from eventd.settings.loading import load
from eventd.settings.model import Settings, flag_of, variable_of
from eventd.settings.problems import BadSettings
from eventd.settings.values import MAX_BYTES, Endpoint

DAY = 86_400_000_000


def problems_of(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        load(flags, environ or {}, file)
    return [str(problem) for problem in caught.value.problems]


def test_without_anything_said_a_node_runs_on_sqlite_for_this_machine_alone() -> None:
    settings = load({}, {})
    assert settings.api_listen == Endpoint("127.0.0.1", 8780)
    assert settings.data_dir == Path("eventd-data").absolute()
    assert settings.database_url == f"sqlite:///{settings.data_dir}/eventd.db"
    assert (settings.batch_retention, settings.dead_letter_retention) == (7 * DAY, 30 * DAY)
    assert {shown.origin for shown in settings.describe()} == {"default"}


def test_a_weaker_value_is_not_judged() -> None:
    assert load({"log_level": "error"}, {"EVENTD_LOG_LEVEL": "loud"}).log_level == "error"


def test_a_blank_variable_and_a_flag_that_was_not_given_say_nothing() -> None:
    settings = load({"group": None}, {"EVENTD_GROUP": "  ", "EVENTD_API_LISTEN": ""})
    assert settings.group is None
    assert settings.api_listen.port == 8780


def test_the_message_is_one_line_for_one_problem_and_a_list_for_several() -> None:
    one = BadSettings([*_problems({"log_level": "x"})])
    assert one.message == "--log-level: 'x' is not one of debug, info, warning, error"
    few = BadSettings([*_problems({"max_connections": "3"})])
    assert few.message == "--max-connections: must be at least 16, not '3'"
    two = BadSettings([*_problems({"log_level": "x", "group": "-"})])
    assert two.message.startswith("2 problems in the settings:\n  ")


def _problems(flags: Mapping[str, Any]) -> Any:
    with pytest.raises(BadSettings) as caught:
        load(flags, {})
    return caught.value.problems


@pytest.mark.parametrize(
    ("flags", "environ", "usage"),
    [
        ({"group": "-"}, {}, True),
        ({}, {"EVENTD_GROUP": "-"}, False),
        ({"group": "-"}, {"EVENTD_LOG_LEVEL": "-"}, False),
    ],
)
def test_only_wrong_flags_are_a_wrong_usage(flags: dict[str, Any], environ: dict[str, str], usage: bool) -> None:
    with pytest.raises(BadSettings) as caught:
        load(flags, environ)
    assert caught.value.usage is usage


def test_an_unknown_variable_is_a_warning_with_a_guess() -> None:
    settings = load({}, {"EVENTD_DATADIR": "/x", "EVENTD_SERVER": "http://x", "OTHER": "y", "EVENTD_QQ": ""})
    assert settings.warnings == (
        "EVENTD_DATADIR is not a setting (did you mean EVENTD_DATA_DIR?)",
        "EVENTD_QQ is not a setting",
    )


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:0", Endpoint("127.0.0.1", 0)),
        ("[::1]:8780", Endpoint("::1", 8780)),
        ("node.example:80", Endpoint("node.example", 80)),
    ],
)
def test_an_endpoint_is_read_and_shown_the_same(text: str, endpoint: Endpoint) -> None:
    assert load({"api_listen": text}, {}).api_listen == endpoint
    assert str(endpoint) == text


@pytest.mark.parametrize("text", ["", "8780", ":8780", "a:b", "a:70000", "::1:80", "http://a:80", "a b:80"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    (problem,) = problems_of({"api_listen": text})
    assert "is not an address" in problem


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.8.9.1", "localhost", "::1")],
        *[(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "127.example", "1127.0.0.1", "localhost.example")],
    ],
)
def test_which_hosts_only_this_machine_reaches(host: str, alone: bool) -> None:
    assert Endpoint(host, 1).is_loopback is alone


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), (" 30s ", 30), ("1.5m", 90), ("1h30m", 5400), ("12h", 43200), ("7d", 604800)],
)
def test_durations(text: str, seconds: float) -> None:
    settings = load({"drain_timeout": text, "batch_retention": text}, {})
    assert settings.drain_timeout == seconds
    assert settings.batch_retention == seconds * 1_000_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *[
            (text, f"{text!r} is not a duration; write 30s, 5m or 168h")
            for text in ("", "5", "1y", "s", "1day", "30 s")
        ],
        ("0", "'0' has no unit: write 0s"),
        ("-1s", "'-1s' must not be negative"),
        ("9999999999s", "'9999999999s' is longer than 292 years"),
    ],
)
def test_what_is_no_duration_is_refused(text: str, reason: str) -> None:
    (problem,) = problems_of({"batch_retention": text})
    assert problem.startswith(f"--batch-retention: {reason}")


def test_a_stop_and_a_round_of_retention_take_some_time() -> None:
    assert len(problems_of({"drain_timeout": "0s", "prune_interval": "0ms"})) == 2
    assert load({"batch_retention": "0s"}, {}).batch_retention == 0


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("1KiB", 1024), ("16MiB", 16 << 20), ("1GiB", 1 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert load({"max_body_bytes": text}, {}).max_body_bytes == size


@pytest.mark.parametrize("text", ["", "1kb", "-1", "1023", "2GiB", "1.5MiB", "16 MiB", "yes"])
def test_what_is_no_size_is_refused(text: str) -> None:
    assert len(problems_of({"max_body_bytes": text})) == 1


@pytest.mark.parametrize(("text", "size"), [("1MiB", 1 << 20), ("256MiB", 256 << 20), ("1024GiB", 1 << 40)])
def test_memory_may_be_more_than_other_sizes(text: str, size: int) -> None:
    assert load({"max_outbox_bytes": text}, {}).max_outbox_bytes == size


@pytest.mark.parametrize("text", ["", "0", "1023KiB", "1025GiB", "1.5GiB"])
def test_memory_that_is_none_or_endless_is_refused(text: str) -> None:
    [problem] = problems_of({"max_outbox_bytes": text})
    assert "0 for any" not in str(problem), "of room in memory there is always some bound"


@pytest.mark.parametrize(("text", "truth"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False)])
def test_truths(text: str, truth: bool) -> None:
    assert load({}, {"EVENTD_ALLOW_INSECURE_NO_AUTH": text}).allow_insecure_no_auth is truth


def test_what_is_neither_true_nor_false_is_refused() -> None:
    (problem,) = problems_of(environ={"EVENTD_ALLOW_INSECURE_NO_AUTH": "maybe"})
    assert problem == "EVENTD_ALLOW_INSECURE_NO_AUTH: 'maybe' is not true or false"


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///", "sqlite:///:memory:", "/data/eventd.db"])
def test_what_is_no_database_url_is_refused_and_not_repeated(url: str) -> None:
    (problem,) = problems_of({"database_url": url})
    assert problem.startswith("--database: is not a database URL")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://h/db?user=me&password=geheim", "has a secret in the query"),
        ("postgresql://h/db?user=me&pass%77ord=geheim", "has a secret in the query"),
        ("postgresql://me:geheim", "has an invalid port"),
        ("postgresql://me:a@geheim@h/db", "has more than one @"),
    ],
)
def test_a_postgres_url_that_would_show_its_password_is_refused(url: str, message: str) -> None:
    (problem,) = problems_of({"database_url": url})
    assert problem.startswith(f"--database: {message}")
    assert "geheim" not in problem


def test_an_odd_folder_name_makes_a_url_that_leads_there() -> None:
    assert load({"data_dir": "/a?b%c d"}, {}).database_url == "sqlite:////a%3Fb%25c d/eventd.db"


def test_a_group_is_named_like_a_resource() -> None:
    assert load({"group": "edge-1.a"}, {}).group == "edge-1.a"
    (problem,) = problems_of({"group": "a/b"})
    assert problem == "--group: 'a/b' is not a valid name of an EventGroup"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("group:g", "is the topic of an event group: name a topic of records"),
        ("routemaster", "is the topic of the Routemaster surface: name another topic"),
        ("a b", "is not a valid name of a topic"),
    ],
)
def test_notices_are_written_to_a_topic_of_records_that_the_node_does_not_write_itself(name: str, reason: str) -> None:
    with pytest.raises(BadSettings, match=f"EVENTD_NOTICES_TOPIC: '{name}' {reason}"):
        load({}, {"EVENTD_NOTICES_TOPIC": name})
    assert load({}, {"EVENTD_NOTICES_TOPIC": " routemaster.notices "}).notices_topic == "routemaster.notices"


def test_a_credential_without_a_directory_says_who_sets_it() -> None:
    (problem,) = problems_of({"database_url_file": "credential:url"})
    assert problem.endswith(
        "needs a credentials directory: set CREDENTIALS_DIRECTORY; systemd does so for LoadCredential="
    )


def test_nothing_secret_is_shown() -> None:
    environ = {"EVENTD_API_KEYS": "topsecret", "EVENTD_DATABASE_URL": "postgresql://me:geheim@h/db"}
    settings = load({}, environ)
    told = f"{settings!r} {settings} {settings.describe()}"
    assert "topsecret" not in told
    assert "geheim" not in told
    shown = {row.name: row.value for row in settings.describe()}
    assert shown["database_url"] == "postgresql://me:***@h/db"
    assert shown["api_keys"] == "(set, not shown)"


@pytest.mark.parametrize("variable", ["EVENTD_DATABASE_URL_FILE", ""], ids=["secret", "settings"])
def test_of_a_file_without_an_end_no_more_is_read_than_shows_it(tmp_path: Path, variable: str) -> None:
    file = tmp_path / "large.toml"
    with file.open("wb") as made:
        made.truncate(MAX_BYTES + 1)
    found = problems_of({}, {variable: str(file)}) if variable else problems_of({}, {}, file)
    assert len(found) == 1
    assert found[0].endswith(f"{file}{'' if variable else ':'} is larger than 1 MiB, the most that is read")


def test_values_are_shown_as_they_are_written() -> None:
    flags = {"drain_timeout": "90s", "batch_retention": "36h", "max_body_bytes": "1536KiB", "prune_interval": "1500ms"}
    shown = {row.name: row.value for row in load(flags, {}).describe()}
    found = [shown[name] for name in (*flags, "allow_insecure_no_auth", "group")]
    assert found == ["90s", "36h", "1536KiB", "1500ms", "false", ""]


def test_what_is_shown_reads_back_as_the_same() -> None:
    settings = load({"group": "g", "drain_timeout": "1m"}, {})
    shown = {row.name: row.value for row in settings.describe() if row.value}
    assert load(shown, {}).model_dump() == settings.model_dump()


def test_text_with_u0000_is_refused() -> None:
    assert problems_of({"data_dir": "a\0b"}) == ["--data-dir: 'a\\x00b' must not contain the character U+0000"]


def test_a_key_is_never_a_flag_and_every_other_setting_is() -> None:
    without = {name for name in Settings.model_fields if not flag_of(name)}
    assert without == {"api_keys", "credentials_directory", "routemaster_root_key", "routemaster_clients"}
    assert variable_of("api_listen") == "EVENTD_API_LISTEN"


def test_the_surroundings_are_no_settings() -> None:
    environ = {"NOTIFY_SOCKET": "@x", "NO_COLOR": "1", "TERM": "", "HOME": "/h"}
    assert service_environment(environ) == {"NOTIFY_SOCKET": "@x", "NO_COLOR": "1"}


def test_a_plugin_sees_where_programs_are_and_nothing_else() -> None:
    assert plugin_environment({"PATH": "/bin", "EVENTD_API_KEYS": "secret"}) == {"PATH": "/bin"}
    assert plugin_environment({"PATH": ""})["PATH"].endswith(":/usr/sbin:/usr/bin:/sbin:/bin")


def test_a_lake_is_a_folder_or_an_address_and_shows_no_secret() -> None:
    assert load({"lake": "lake"}, {}).lake == str(Path("lake").absolute())
    assert load({}, {}).lake == ""
    settings = load({}, {"EVENTD_LAKE": "s3://me:hush@bucket/lake?sig=hush"})
    assert settings.lake == "s3://me:hush@bucket/lake?sig=hush"
    shown = {setting.name: setting.value for setting in settings.describe()}
    assert shown["lake"] == "s3://***@bucket/lake?***"
    assert "hush" not in repr(settings)


def test_ages_of_the_lake_may_be_without_an_end() -> None:
    settings = load({"lake_retention": "0", "lake_compact_after": 0}, {})
    assert (settings.lake_retention, settings.lake_compact_after) == (0, 0)
    assert load({"lake_retention": "90d"}, {}).lake_retention == 90 * 86_400_000_000
    (problem,) = problems_of({"lake_retention": "90"})
    assert "a unit is missing" in problem


def test_the_shipping_process_gets_what_is_not_ours() -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "x", "HOME": "/h", "EVENTD_API_KEYS": "hush"}
    assert lake_environment(environ) == {"AWS_SECRET_ACCESS_KEY": "x", "HOME": "/h"}


def test_addresses_of_callbacks_and_peers_are_lists_like_others() -> None:
    settings = load(
        {"callback_allow": "10.0.0.0/8, hooks.example:80", "callback_deny": ["10.1.0.0/16", "[fd00::1]:80"]}, {}
    )
    rules = settings.callback_rules
    assert [entry.text for entry in (*rules.allow, *rules.deny)] == [
        *("10.0.0.0/8", "hooks.example:80", "10.1.0.0/16", "[fd00::1]:80")
    ]
    assert rules.judge("10.2.0.1", "a", 443) is None
    shown = {row.name: row.value for row in settings.describe()}
    assert (shown["callback_allow"], shown["callback_deny"]) == (
        "10.0.0.0/8, hooks.example:80",
        "10.1.0.0/16, [fd00::1]:80",
    )
    assert settings.peer_rules is None
    only = load({}, {"EVENTD_PEER_ALLOW": "10.99.0.0/16"}).peer_rules
    assert only is not None
    assert only.judge("10.0.0.1", "b", 443) is not None


def test_an_address_that_cannot_be_read_is_named_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("log_level: info\ncallback_allow: [10.0.0.0/8, 10.1.2.3/16]\npeer_deny: 'a,,b'\n")
    found = problems_of({"peer_allow": "::ffff:10.0.0.1"}, {"EVENTD_CALLBACK_DENY": "https://a"}, file)
    assert found == [
        f"{file}:2: callback_allow: entry 2, '10.1.2.3/16', has bits beyond its prefix: write 10.1.0.0/16",
        "EVENTD_CALLBACK_DENY: entry 1, 'https://a', is not valid: write an address, a network or a host name,"
        " each with or without a port, such as 10.1.2.3, 10.0.0.0/8, hooks.example:8443 or [fd00::1]:8443",
        "--peer-allow: entry 1, '::ffff:10.0.0.1', would have no effect: such an address is judged by the IPv4 address"
        " in it, so allow that one",
        f"{file}:3: peer_deny: entry 2 of 'a,,b' is empty: leave it out, with its comma",
    ]


@pytest.mark.parametrize(
    "password", ["PGPAS/SECRET", "PGPAS%40SECRET", "PGPAS?SECRET", "12/SECRET", "PGPAS SECRET", "%40/:SECRET"]
)
def test_a_database_password_with_separators_is_not_shown(password: str) -> None:
    settings = load({}, {"EVENTD_DATABASE_URL": f"postgresql+psycopg://u:{password}@127.0.0.1:1/x"})
    shown = {row.name: row.value for row in settings.describe()}
    assert shown["database_url"] == "postgresql+psycopg://u:***@127.0.0.1:1/x"


def test_a_database_file_with_separators_in_its_name_is_shown() -> None:
    settings = load({}, {"EVENTD_DATABASE_URL": "sqlite:////srv/a:b@c.db"})
    assert "sqlite:////srv/a:b@c.db" in {row.value for row in settings.describe()}


@pytest.mark.parametrize(
    "variable",
    [
        *(
            "EVENTD_CONSOLE_METRICS_URL",
            "EVENTD_CALLBACK_ALLOW",
            "EVENTD_CALLBACK_DENY",
            "EVENTD_ROUTEMASTER_PUBLIC_URL",
        ),
        *("EVENTD_API_LISTEN", "EVENTD_LOG_FORMAT", "EVENTD_GROUP", "EVENTD_WORKERS", "EVENTD_CONSOLE"),
    ],
)
@pytest.mark.parametrize("user", ["gu:GRAFSECRET", "gu:GRAF/SECRET", "GRAFSECRET", "gu:" + 60 * "GRAFSECRET"])
def test_problems_of_settings_do_not_show_the_user_info_of_urls(variable: str, user: str) -> None:
    (problem,) = problems_of(environ={variable: f"https://{user}@g/x y"})
    assert "GRAF" not in problem
    assert "SECRET" not in problem
