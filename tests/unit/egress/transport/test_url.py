"""What of a URL is sent: path and query as they are written, and nothing that belongs to its owner alone."""

from __future__ import annotations

import pytest

from eventd.egress.transport.url import ConnectionOrigin, read_url


@pytest.mark.parametrize(
    ("url", "target", "host"),
    [
        ("https://a.example", "/", "a.example"),
        ("https://a.example/", "/", "a.example"),
        ("https://a.example/hooks", "/hooks", "a.example"),
        ("https://a.example/hooks/", "/hooks/", "a.example"),
        ("https://a.example//hooks//", "//hooks//", "a.example"),
        ("https://a.example/a%2Fb;c=1,d/~e@f:g", "/a%2Fb;c=1,d/~e@f:g", "a.example"),
        ("https://a.example/ä b", "/%C3%A4%20b", "a.example"),
        ("https://a.example/x?token=a%20b&c=d/e?f", "/x?token=a%20b&c=d/e?f", "a.example"),
        ("https://a.example?x=ä", "/?x=%C3%A4", "a.example"),
        ("https://a.example/x#part", "/x", "a.example"),
        ("https://a.example/x?y#part?z", "/x?y", "a.example"),
        ("https://A.Example:443/x", "/x", "A.Example:443"),
        ("http://a.example:8080/x", "/x", "a.example:8080"),
        ("https://user:pw@a.example:8443/x", "/x", "a.example:8443"),
        ("https://user@a.example/x", "/x", "a.example"),
        ("https://us@er:p@w@a.example/x", "/x", "a.example"),
        ("https://user:pw@[fd00::1]:8443/x", "/x", "[fd00::1]:8443"),
        ("https://a.example/x\r\nX-Evil: 1", "/xX-Evil:%201", "a.example"),
    ],
)
def test_the_request_line_and_the_host_of_a_url(url: str, target: str, host: str) -> None:
    assert read_url(url)[1] == f" {target} HTTP/1.1\r\nHost: {host}\r\n"


@pytest.mark.parametrize(
    ("url", "origin", "address"),
    [
        ("https://u:p@A.Example/x", ConnectionOrigin(True, "a.example", 443), "a.example:443"),
        ("http://a.example", ConnectionOrigin(False, "a.example", 80), "a.example:80"),
        ("https://[FD00::1]:8443", ConnectionOrigin(True, "fd00::1", 8443), "[fd00::1]:8443"),
    ],
)
def test_where_a_url_leads_to(url: str, origin: ConnectionOrigin, address: str) -> None:
    assert read_url(url)[0] == origin
    assert origin.address == address
