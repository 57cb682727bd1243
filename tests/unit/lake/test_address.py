"""What is shown of the addresses of lakes, and of texts of other programs that name them."""

from __future__ import annotations

import time

import pytest

from eventd.lake.address import mask_addresses, secrets_of, shown, without_secrets
from tests.support.addresses import SHOWN

ADDRESS = "s3://AKIAKEY:hush%2Fhush@bucket/lake?token=veiled&region=eu"


@pytest.mark.parametrize(("url", "expected"), SHOWN)
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


def test_a_user_without_a_password_and_a_path_are_no_secrets() -> None:
    addresses = ("hdfs://eventd@nn:8020/lake", "s3://b/a&b=data;c=data/lake", "s3://b/lake?secure=true")
    text = "routerd-eventd: true, data/lake of eventd"
    assert without_secrets(text, *addresses) == text


def test_data_is_masked_only_in_addresses_that_have_a_secret() -> None:
    secrets = secrets_of("s3://eventd:edge@bucket/lake?sig=veiled", "https://token@host/lake")
    for same in (
        "edge.eventd.seen",
        "eventd:edge",
        "at https://ann@shop/?x=y",
        "s3://bucket/lake",
        "https://host/token",
    ):
        assert mask_addresses(same, secrets) == same
    assert mask_addresses("edge in s3a://eventd:edge@bucket/lake", secrets) == "edge in s3a://***@bucket/lake"
    assert mask_addresses("s3a://bucket/lake%3Fsig=veiled/a", secrets) == "s3a://bucket/lake%3F***/a"
    assert mask_addresses("https://token@host/lake/a", secrets) == "https://***@host/lake/a"


@pytest.mark.parametrize("unit", ["a", "://", "://a:", "s3://a", "#", "a@", "a.b-c+"])
def test_the_time_grows_with_the_length_of_a_text_and_not_faster(unit: str) -> None:
    text = "s3://b/x " + unit * (200_000 // len(unit))
    begun = time.process_time()
    assert shown(text)
    assert time.process_time() - begun < 3
