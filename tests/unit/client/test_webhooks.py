"""Verifying a callback as a receiver does: with the texts of secrets, and its own clock."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.client import webhooks
from eventd.testing import ManualClock
from federation.webhooks import read_key, sign

OLD, NEW = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM="
SENT = 1_800_000_000


def request(secret: str) -> dict[str, str]:
    signature = sign([read_key("k", secret)], "m-1", SENT, b"{}")
    return {"webhook-id": "m-1", "webhook-timestamp": str(SENT), "webhook-signature": signature}


def test_either_secret_of_a_rotation() -> None:
    clock = ManualClock(SENT * 1_000_000)
    for secret in (OLD, NEW):
        assert webhooks.verify(request(secret), b"{}", [OLD, NEW], clock=clock) == ("m-1", SENT)
        keys = [webhooks.read_secret(text) for text in (OLD, NEW)]
        assert webhooks.verify(request(secret), b"{}", keys, clock=clock) == ("m-1", SENT)


def test_wrong_secret_and_replay() -> None:
    with pytest.raises(webhooks.Unauthorized):
        webhooks.verify(request(OLD), b"{}", NEW, clock=ManualClock(SENT * 1_000_000))
    with pytest.raises(webhooks.ClockSkew):
        webhooks.verify(request(OLD), b"{}", OLD, clock=ManualClock((SENT + 61) * 1_000_000), tolerance=60)
    with pytest.raises(webhooks.ClockSkew):
        webhooks.verify(request(OLD), b"{}", OLD)


def test_unusable_secret() -> None:
    with pytest.raises(webhooks.BadKey, match="key '2'"):
        webhooks.verify(request(OLD), b"{}", [OLD, "geheim"])
    with pytest.raises(webhooks.BadKey, match="no secret was given"):
        webhooks.verify(request(OLD), b"{}", [])
    with pytest.raises(webhooks.BadKey, match="key 'of the receiver'"):
        webhooks.read_secret("geheim")


@pytest.mark.parametrize("body", ["{}", None, {}])
def test_a_body_that_was_decoded(body: Any) -> None:
    with pytest.raises(TypeError, match="must be the bytes that were received, not a "):
        webhooks.verify(request(OLD), body, OLD)
