"""What is shown of the addresses of lakes, and of texts of other programs that name them."""

from __future__ import annotations

import pytest

from eventd.lake.address import shown, without_secrets

ADDRESS = "s3://AKIAKEY:hush%2Fhush@bucket/lake?token=veiled&region=eu"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/lake", "s3://bucket/lake"),
        ("ftp://me:hush@host/lake", "ftp://***@host/lake"),
        ("ftp://me:hu@sh@host/lake", "ftp://***@host/lake"),
        ("ftp://me:hu/sh@host/lake", "ftp://***@host/lake"),
        ("https://hush@host:8080/lake", "https://***@host:8080/lake"),
        ("hdfs://head:8020/a@b/lake", "hdfs://head:8020/a@b/lake"),
        ("simplecache::s3://me:hush@bucket/lake", "simplecache::s3://***@bucket/lake"),
        ("abfss://lake@account.dfs.core.windows.net/x", "abfss://lake@account.dfs.core.windows.net/x"),
        ("abfss://lake:hush@account/x?sig=hush", "abfss://***@account/x?***"),
        ("https://host/lake?sig=hush", "https://host/lake?***"),
        ("https://host/lake#hush", "https://host/lake#***"),
        ("/srv/why?/lake#1", "/srv/why?/lake#1"),
    ],
)
def test_an_address_is_shown_without_its_secrets_and_with_all_that_names_the_lake(url: str, expected: str) -> None:
    assert shown(url) == expected
    assert shown(shown(url)) == expected


@pytest.mark.parametrize(
    "text",
    [
        f"Path does not exist: {ADDRESS}/landing",
        "Path does not exist: s3a://AKIAKEY:hush%2Fhush@bucket/lake?token=veiled&region=eu/landing",
        "login AKIAKEY:hush/hush of bucket failed",
        "the password hush%2Fhush is wrong, and so is hush/hush",
        "Wrong FS: s3a:/lake?token=veiled",
        "no value veiled in token%3Dveiled%26region%3Deu",
    ],
)
def test_a_text_of_another_program_is_shown_without_the_secrets_in_whatever_form_it_writes_them(text: str) -> None:
    masked = without_secrets(text, ADDRESS)
    assert "***" in masked
    assert "hush" not in masked
    assert "veiled" not in masked


def test_the_token_of_a_server_of_spark_connect_is_not_shown() -> None:
    assert without_secrets("token hushhush refused", "sc://host:15002/;token=hushhush") == "token *** refused"


def test_a_text_without_secrets_is_shown_as_it_is() -> None:
    assert without_secrets("is it #1? yes, by me@host", "/srv/lake", "s3://bucket/lake", "") == (
        "is it #1? yes, by me@host"
    )
