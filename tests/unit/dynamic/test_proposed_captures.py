"""A plugin's result that captures an address must not report the same address as a client."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.dynamic.guard import OBSERVED, SelfCapture, refuse_proposed


def capture(address: str) -> dict[str, Any]:
    spec = {"address": address, "capture": {"type": "proxy-arp"}}
    return {"kind": "RemoteAddressClaim", "metadata": {"name": "c"}, "spec": spec}


@pytest.mark.parametrize(
    ("captured", "said"),
    [
        (
            "10.0.0.1/32",
            "the plugin's result reports a client at 10.0.0.1, which its own RemoteAddressClaim/c captures",
        ),
        (
            "somewhere",
            "RemoteAddressClaim/c of the plugin's result captures an address that cannot be read; it might be 10.0.0.1",
        ),
    ],
)
def test_a_result_does_not_report_what_it_captures(captured: str, said: str) -> None:
    with pytest.raises(SelfCapture) as caught:
        refuse_proposed([capture(captured)], [("another", "10.0.0.1", {}), (OBSERVED, "10.0.0.1", {})])
    assert caught.value.detail == [{"index": 1, "message": said}]


def test_a_report_of_another_address_passes() -> None:
    refuse_proposed([capture("10.0.0.1/32")], [(OBSERVED, "10.0.0.2", {}), (OBSERVED, "no address", {})])
    refuse_proposed([], [(OBSERVED, "10.0.0.1", {})])
