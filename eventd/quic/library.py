"""Loads the QUIC library, which comes with the extra `quic`."""

from __future__ import annotations

from importlib.util import find_spec

from eventd.errors import MissingExtra


def require(what: str) -> None:
    """Check that the library is installed, without loading it. Raises MissingExtra, which says `what` needs it."""
    if find_spec("qh3") is None:
        raise MissingExtra(f"{what} needs the extra quic", hint="pip install 'routerd-eventd[quic]'")
