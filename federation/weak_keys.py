"""Public keys of Ed25519 whose signatures can be forged, and second spellings of keys.

A point of small order verifies one signature for all messages. The library verifies without refusing such keys.
"""

from __future__ import annotations

from typing import Final

_P: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
"""The y coordinate of two of the four points of order 8; that of the others is its negative."""
_SMALL_ORDER: Final = frozenset({0, 1, _P - 1, _ORDER_8, _P - _ORDER_8})


def is_weak(public: bytes) -> bool:
    """Return whether the 32 bytes of a public key encode a point of small order, or are not in canonical form."""
    y = int.from_bytes(public, "little") & (2**255 - 1)  # the last bit is the sign of x
    return y >= _P or y in _SMALL_ORDER
