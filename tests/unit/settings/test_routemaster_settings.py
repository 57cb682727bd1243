"""The settings of the Routemaster surface, Routemaster's own variables, and what keeps the surface from starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.api.routemaster.configuration import config_of, read_clients, read_root_key
from eventd.log.routemaster.tokens import NewToken
from eventd.settings.environment import lake_environment, worker_environment
from eventd.settings.loading import load
from eventd.settings.model import Settings
from eventd.settings.problems import BadSettings

LISTEN = {"EVENTD_ROUTEMASTER_LISTEN": "127.0.0.1:0"}
KEY = "k" * 16
REFERENCE = {
    "ROUTEMASTER_ROOT_KEY": KEY,
    "ROUTEMASTER_CLIENTS": "shop--1,app--2",
    "FORCE_SSL": "false",
    "ROUTEMASTER_SSL_VERIFY": "0",
    "ROUTEMASTER_MAX_EVENT_DATA": "128",
    "MAX_BACKOFF_MS": "1500",
    "ROUTEMASTER_TIMEOUT": "7",
    "ROUTEMASTER_CONNECT_TIMEOUT": "3",
    "ROUTEMASTER_SCALING_THRESHOLD": "5",
    "ROUTEMASTER_SCALING_DEADLINE": "250",
}


def problems_of(**given: str) -> list[str]:
    """The problems of settings, named without their prefix."""
    with pytest.raises(BadSettings) as caught:
        load({f"routemaster_{name}": value for name, value in given.items()}, LISTEN)
    return [str(problem) for problem in caught.value.problems]


def of(**environ: str) -> Settings:
    return load({}, LISTEN | environ)


def test_the_surface_is_off_and_asks_for_tls_by_default() -> None:
    settings = load({}, {})
    assert settings.routemaster_listen is None
    assert settings.routemaster_require_tls
    assert settings.routemaster_tls is None
    config = config_of(settings)
    assert (config.topic.cap_bytes, config.topic.discard, config.empty_list) == (0, "reject", False)
    assert (read_root_key(settings), read_clients(settings)) == ("", [])


def test_variables_of_routemaster_count_where_ours_are_absent() -> None:
    settings = of(**REFERENCE)
    assert (read_root_key(settings), settings.origin("routemaster_root_key")) == (KEY, "ROUTEMASTER_ROOT_KEY")
    assert read_clients(settings) == [NewToken("shop", "shop--1"), NewToken("app", "app--2")]
    assert (settings.routemaster_require_tls, settings.routemaster_ssl_verify) == (False, False)
    assert settings.routemaster_max_event_data == 128
    times = (settings.routemaster_max_backoff, settings.routemaster_timeout, settings.routemaster_connect_timeout)
    assert times == (1.5, 7.0, 3.0)
    assert (settings.routemaster_scaling_threshold, settings.routemaster_scaling_deadline) == (5, 0.25)
    ours = {"EVENTD_ROUTEMASTER_ROOT_KEY": "o" * 16, "EVENTD_ROUTEMASTER_MAX_BACKOFF": "9s"}
    settings = of(**REFERENCE, **ours)
    assert (read_root_key(settings), settings.routemaster_max_backoff) == ("o" * 16, 9.0)


@pytest.mark.parametrize(("text", "interval"), [("0", 0), ("0s", 0), ("1s", 1_000_000), ("1m", 60_000_000)])
def test_metrics_are_logged_at_intervals_of_a_second_or_more(text: str, interval: int) -> None:
    assert of(EVENTD_ROUTEMASTER_METRICS_INTERVAL=text).routemaster_metrics_interval == interval
    for wrong, words in (("999ms", "'999ms' is shorter than 1s"), ("soon", "'soon' is not a duration"), ("5", "unit")):
        assert words in problems_of(metrics_interval=wrong)[0]


def test_variables_of_routemaster_do_nothing_while_the_surface_is_off() -> None:
    settings = load({}, REFERENCE | {"MAX_BACKOFF_MS": "nonsense"})
    assert (read_root_key(settings), settings.routemaster_max_backoff) == ("", 60.0)
    with pytest.raises(BadSettings, match=r"^MAX_BACKOFF_MS: 'nonsense' is not a duration"):
        load({}, LISTEN | {"MAX_BACKOFF_MS": "nonsense"})


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("YES", True),
        ("TRUE", True),
        ("ON", True),
        ("1", True),
        ("10", True),
        ("true", True),
        ("0", False),
        ("no", False),
    ],
)
def test_force_ssl_is_on_if_it_contains_one_of_four_words(text: str, on: bool) -> None:
    assert of(FORCE_SSL=text).routemaster_require_tls is on


@pytest.mark.parametrize(
    ("key", "reason"),
    [("CHANGE-ME", "example of the documentation"), ("k" * 15, "has 15 characters"), (f"{KEY}:", "contains a colon")],
)
def test_a_bad_root_key_is_refused_and_not_shown(key: str, reason: str) -> None:
    for variable in ("EVENTD_ROUTEMASTER_ROOT_KEY", "ROUTEMASTER_ROOT_KEY"):
        with pytest.raises(BadSettings, match=reason) as caught:
            read_root_key(of(**{variable: key}))
        assert str(caught.value).startswith(f"{variable}: ")
        assert key == "CHANGE-ME" or key not in str(caught.value)


def test_the_root_key_may_be_in_a_file_and_is_given_once(tmp_path: Path) -> None:
    file = tmp_path / "root"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    in_file = {"EVENTD_ROUTEMASTER_ROOT_KEY_FILE": str(file)}
    assert read_root_key(of(**in_file)) == KEY
    assert read_root_key(of(**in_file, ROUTEMASTER_ROOT_KEY="x" * 16)) == KEY
    with pytest.raises(BadSettings, match="also given by EVENTD_ROUTEMASTER_ROOT_KEY_FILE"):
        read_root_key(of(**in_file, EVENTD_ROUTEMASTER_ROOT_KEY=KEY))
    file.write_text("\n")
    with pytest.raises(BadSettings, match="is empty"):
        read_root_key(of(**in_file))
    file.unlink()
    with pytest.raises(BadSettings, match="cannot be read"):
        read_root_key(of(**in_file))


def test_a_bad_token_is_named_by_its_number_and_not_shown() -> None:
    with pytest.raises(BadSettings, match=r"EVENTD_ROUTEMASTER_CLIENTS: entry 2 is not a token") as caught:
        read_clients(of(EVENTD_ROUTEMASTER_CLIENTS="shop--1,SECRET,x"))
    assert "SECRET" not in str(caught.value)


def test_a_token_without_a_name_is_not_its_own_name() -> None:
    found = read_clients(of(EVENTD_ROUTEMASTER_CLIENTS="hidden,--hidden, a--b--c,\nx--1"))
    assert [token.label for token in found] == ["client", "client", "a", "x"]


def test_secrets_are_not_shown_and_not_handed_to_child_processes() -> None:
    settings = of(**REFERENCE)
    shown = {row.name: row.value for row in settings.describe()}
    assert (shown["routemaster_root_key"], shown["routemaster_clients"]) == ("(set, not shown)", "(set, not shown)")
    for environment in (lake_environment(REFERENCE), worker_environment(REFERENCE)):
        assert not {"ROUTEMASTER_ROOT_KEY", "ROUTEMASTER_CLIENTS"} & environment.keys()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("listen", "8780", "is not an address"),
        ("public_url", "http://bus.example", "is not https://HOST"),
        ("public_url", "https://bus.example/path", "is not https://HOST"),
        ("public_url", "https://me@bus.example", "is not https://HOST"),
        ("trusted_proxies", "10.0.0.1/8", "is not an address or a network"),
        ("trusted_proxies", "10.0.0.0/8,,::1", "entry 2"),
        ("max_event_data", "0", "is not between"),
        ("scaling_threshold", "0", "must be at least 1"),
        ("empty_list", "404", "is not one of 204, 200"),
        ("discard", "new", "is not one of reject, old"),
        ("tls_cert", "a.pem", "routemaster_tls_cert needs routemaster_tls_key as well"),
    ],
)
def test_wrong_values_are_named(name: str, value: str, words: str) -> None:
    given = {name: value}
    (problem,) = problems_of(**given)
    assert words in problem


def test_values_reach_the_surface() -> None:
    flags = {
        "routemaster_public_url": "https://bus.example:8443/",
        "routemaster_trusted_proxies": "10.0.0.0/8, fd00::/8",
        "routemaster_max_bytes": "100MiB",
        "routemaster_min_free": "10MiB",
        "routemaster_discard": "old",
        "routemaster_empty_list": "200",
        "routemaster_tls_cert": "/a.pem",
        "routemaster_tls_key": "credential:key",
    }
    settings = load(flags, LISTEN)
    config = config_of(settings)
    assert (config.public_url, len(config.proxies), config.empty_list) == ("https://bus.example:8443", 2, True)
    assert (config.topic.cap_bytes, config.topic.discard) == (90 << 20, "old")
    assert settings.routemaster_tls is not None
    assert settings.routemaster_tls.key_file == "credential:key"
    shown = {row.name: row.value for row in settings.describe() if row.value}
    assert (shown["routemaster_max_bytes"], shown["routemaster_scaling_threshold"]) == ("100MiB", "100")
    assert load(shown, {}).model_dump() == settings.model_dump()
