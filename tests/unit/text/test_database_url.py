"""URLs of Postgres databases that no driver may read, because it would quote parts of the password."""

from __future__ import annotations

import pytest

from eventd.text.database_url import postgres_problem


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://127.0.0.1:80ab/db", "has an invalid port"),
        ("postgresql://127.0.0.1:/db", "has an invalid port"),
        ("postgresql://127.0.0.1:0/db", "has an invalid port"),
        ("postgresql://127.0.0.1:65536/db", "has an invalid port"),
        ("postgresql://127.0.0.1:٣/db", "has an invalid port"),
        ("postgresql://a:1,b:2/db", "has an invalid port"),
        ("postgresql://me:geheim", "has an invalid port"),
        ("postgresql://me:geheim pw@[127.0.0.1:5432/db", "has an invalid host"),
        ("postgresql://me:geheim@%2Fvar%2Frun/db", "has an invalid host"),
        ("postgresql://me:pw@[::1]geheim/db", "has an invalid host"),
        ("postgresql://me:pw@b%40geheim/db", "has an invalid host"),
        ("postgresql://me:a@geheim@h/db", "has more than one @"),
        ("postgresql://me:a@b/geheim@h/db", "has more than one @"),
        ("postgresql://me:a@b?geheim@h/db", "has more than one @"),
        ("postgresql://me/geheim@127.0.0.1/db", "has an @ after a /"),
        ("postgresql://m/e:geheim@127.0.0.1:1/db", "has an @ after a /"),
        ("postgresql:///db?application_name=a@b", "has an @ after a /"),
        ("postgresql://h/db?password=geheim", "has a secret in the query, which is shown in logs"),
        ("postgresql://h/db?sslmode=require&PASS%77ORD=geheim", "has a secret in the query, which is shown in logs"),
        ("postgresql://h/db?oauth_client_secret=geheim", "has a secret in the query, which is shown in logs"),
        ("postgresql://h/db?passwd=geheim", "has a secret in the query, which is shown in logs"),
        ("postgresql://h:1/db?user=u&password=a@geheim", "has a secret in the query, which is shown in logs"),
        ("postgresql://u@h:1/db?ssl%70assword=a@geheim", "has a secret in the query, which is shown in logs"),
        ("postgresql://u@h:1/db?application_name=a@geheim", "has more than one @"),
        ("postgresql://me:a%00geheim@h/db", "contains a character that is not text"),
        ("postgresql://me:a\udcffgeheim@h/db", "contains a character that is not text"),
    ],
)
def test_a_malformed_url_is_refused_without_a_part_of_it(url: str, message: str) -> None:
    problem = postgres_problem(url)
    assert problem is not None
    assert problem.message == message
    assert "geheim" not in problem.advice


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgresql:///db?host=/run/postgresql",
        "postgresql+psycopg://me@db-1.example_a,db2/events",
        "postgres://me:g/e?h:e im%40@[fe80::1%eth0]:5432/events?sslmode=verify-full",
        "postgresql://me@/db?host=db-1:5432&host=db-2:5433&application_name=a%40b",
    ],
)
def test_a_url_that_leads_to_a_server_has_no_problem(url: str) -> None:
    assert postgres_problem(url) is None
