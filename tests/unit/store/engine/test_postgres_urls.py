"""What is wrong with the URL of a Postgres database is said without its password, and with what to write."""

from __future__ import annotations

import pytest

from eventd.errors import DatabaseUnavailable, SettingsError
from eventd.store.engine.address import SqliteUrl, parse_url
from eventd.store.engine.sessions import open_session
from eventd.store.engine.translation import translated

QUERY = "the database URL has invalid hosts or ports in the query"
DSN = "host=h password=geheim"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("postgresql://h:80ab/db", "the database URL has an invalid port", "postgresql://USER@HOST:PORT/NAME"),
        ("postgresql://me:geheim@h/db?port=1x", QUERY, "?host=HOST1:PORT1&host=HOST2:PORT2"),
        ("postgresql://me:geheim@h/db?port=1,2", QUERY, "?host=HOST1:PORT1&host=HOST2:PORT2"),
        ("postgresql://me:geheim@/db?host=::1&host=::2", QUERY, "?host=HOST1:PORT1&host=HOST2:PORT2"),
        ("mysql://me:geheim@h/db", "unsupported database 'mysql'", "postgresql://USER@HOST/NAME"),
        (DSN, "the database URL cannot be read", "postgresql://USER@HOST/NAME"),
        ("postgresql%3A%2F%2Fme:geheim@h", "the database URL cannot be read", "postgresql://USER@HOST/NAME"),
        ("sqlite://", "a node's database must be a file, not memory", "write sqlite:///PATH"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_with_one_that_can(text: str, message: str, hint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_url(text)
    assert refused.value.message == message
    assert refused.value.hint is not None
    assert hint in refused.value.hint
    assert "geheim" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("sslmode=foo", 'invalid sslmode value: "foo"', "disable, allow, prefer, require, verify-ca, verify-full"),
        ("nonsense=1", 'invalid connection option "nonsense"', "correct the parameters after the ?"),
    ],
)
def test_a_parameter_that_the_driver_refuses_is_named_without_the_password(query: str, message: str, hint: str) -> None:
    url = parse_url(f"postgresql://me:geheim pw@127.0.0.1:1/db?{query}")
    assert not isinstance(url, SqliteUrl)
    with pytest.raises(DatabaseUnavailable) as refused, translated("the database"):
        open_session(url, "test")
    assert message in refused.value.message
    assert refused.value.hint is not None
    assert hint in refused.value.hint
    assert "geheim" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"
