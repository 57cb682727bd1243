"""What is kept of an endpoint's answer has neither secrets nor events in it, in whatever form it echoes them."""

from __future__ import annotations

import base64
import html
import json
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from eventd.egress.callbacks.masking import AnswerMask
from eventd.egress.loop.sink import LONGEST
from federation.keys import Key
from federation.webhooks import format_secret, format_seed, read_key

UUID = 'c0ffee-uuid/"of"+app'
RAW = bytes(range(32))


class Secrets(NamedTuple):
    keys: tuple[Key, ...] = ()
    authorization: str | None = None


def basic(user: str, password: str = "x") -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def mask(authorization: str = "", url: str = "https://app.example/", *keys: Key) -> AnswerMask:
    return AnswerMask(Secrets(keys, authorization or None), url)


@pytest.mark.parametrize(
    "echo",
    [
        f"Basic {basic(UUID)}",
        basic(UUID),
        basic(UUID).rstrip("="),
        f"user {UUID} is unknown",
        f"{UUID}:x",
        quote(UUID, safe=""),
        json.dumps({"user": UUID}),
        json.dumps({"header": basic(UUID)}).replace("/", "\\/"),
        html.escape(f"<p>{UUID}</p>"),
    ],
)
def test_a_uuid_is_masked_in_every_form_in_which_servers_write_it(echo: str) -> None:
    kept = mask(f"Basic {basic(UUID)}").apply(echo)
    assert "***" in kept
    assert "c0ffee" not in kept
    assert basic(UUID)[:8] not in kept


def test_a_secret_that_looks_escaped_is_masked() -> None:
    odd = 'geheim&amp;geheim\\"geheim'
    assert mask(f"Bearer {odd}").apply(f"got {odd}!") == "got ***!"


def test_bearer_tokens_passwords_and_user_info_are_masked() -> None:
    kept = mask("Bearer tok-0123456789", "https://bob:s%40fe-word@app.example/").apply(
        "got Bearer tok-0123456789 from bob with s@fe-word (s%40fe-word), bob:s%40fe-word, but not from bobby"
    )
    assert kept == "got Bearer *** from *** with *** (***), ***, but not from bobby"
    assert mask(f"Basic {basic('shop', 'geheim-geheim')}").apply("shop: geheim-geheim") == "***: ***"


@pytest.mark.parametrize("text", [format_secret(RAW), format_seed(RAW)])
def test_signing_keys_are_masked(text: str) -> None:
    key = read_key("k", text)
    raw = text.partition("_")[2]
    for echo in (text, raw, raw.rstrip("="), raw.replace("+", "-").replace("/", "_"), RAW.hex()):
        kept = mask("", "https://app.example/", key).apply(f"key {echo} is wrong")
        assert kept in ("key *** is wrong", f"key {text.partition('_')[0]}_*** is wrong"), echo


def test_the_password_beside_a_uuid_and_an_empty_uuid_mask_nothing() -> None:
    assert mask(f"Basic {basic('')}").apply("x is not a valid x") == "x is not a valid x"
    assert AnswerMask(Secrets(), "no url at all").apply("fine") == "fine"


def test_a_secret_that_the_end_of_the_answer_cuts_is_not_kept() -> None:
    long = "u" * 3000
    found = mask(f"Bearer {long}")
    for text, is_cut in ((long * 3 + long[:2999], True), ((long + " ") * 40, False), (long[:2999], True)):
        assert "uu" not in found.apply(text, is_cut=is_cut)
    assert len(found.apply("words " * 20_000)) <= 4096


BODY = json.dumps([{"topic": "orders", "url": f"https://shop.example/orders/{n}", "t": 1} for n in range(50)]).encode()


@pytest.mark.parametrize(
    "echo",
    [BODY.decode(), BODY.decode()[100:400], json.dumps(BODY.decode()), html.escape(BODY.decode())],
    ids=["whole", "part", "json", "html"],
)
def test_an_echo_of_the_message_is_masked_and_what_is_said_about_it_stays(echo: str) -> None:
    kept = mask().apply(f"cannot parse: {echo}; see the manual", BODY)
    assert kept.startswith("cannot parse: ")
    assert "shop.example" not in kept
    assert kept.endswith("; see the manual")


def test_words_that_the_message_happens_to_have_stay() -> None:
    assert mask().apply("topic orders: url is not known to this shop", BODY) == (
        "topic orders: url is not known to this shop"
    )


def test_a_large_message_is_searched_in_a_moment() -> None:
    body = json.dumps([{"url": f"https://shop.example/{n:032}"} for n in range(60_000)]).encode()
    assert len(body) > 3 << 20
    assert "shop.example" not in mask().apply(f"wrong: {body[1_000_000:1_000_400].decode()}", body)


@pytest.mark.parametrize("echoes", [1, 10, 100])
def test_of_a_long_answer_only_what_is_kept_is_searched_for(echoes: int) -> None:
    """The event loop waits for each search of a large message."""

    class Message(str):
        searches = 0

        def find(self, *args: Any) -> int:
            self.searches += 1
            return super().find(*args)

    class Body(bytes):
        def decode(self, *_: Any) -> str:
            return sent

    sent = Message("|".join(f"{number:040}" for number in range(1000)))
    answer = "; ".join(f"{'words ' * 50}{number:040}" for number in range(echoes))
    answer += " ".join(f"{number:040}" for number in range(echoes))
    kept = mask().apply(answer, Body())
    assert sent.searches <= 64
    assert len(kept) <= LONGEST
    assert "0" * 16 not in kept
    assert kept.startswith("words words ")
