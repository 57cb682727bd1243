"""What to do about an error of an object store, whose packages have error classes of their own."""

from __future__ import annotations

import re
from typing import Final

_REMEDIES: Final = (
    (
        re.compile(r"Credential|Token|Unauthenticated|Unauthorized"),
        "give credentials where the tools of the store look for them: for S3 in AWS_ACCESS_KEY_ID and"
        " AWS_SECRET_ACCESS_KEY",
    ),
    (
        re.compile(r"Permission|Forbidden|AccessDenied"),
        "check that the credentials may list, read, write and delete below the address",
    ),
    (
        re.compile(r"Connect|Timeout|Endpoint|gaierror"),
        "check the address, and that the store answers: for S3 also its address in FSSPEC_S3_ENDPOINT_URL",
    ),
)
"""The remedies, each with the names of the error classes that it applies to."""
_MOST_CAUSES: Final = 5


def remedy_of(error: BaseException) -> str:
    """Return what to do about an error of a store, by the name of its class and those of its causes; or an empty text.

    Some packages wrap the error of another one in an OSError.
    """
    seen: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if seen is None:
            break
        for names, remedy in _REMEDIES:
            if names.search(type(seen).__name__):
                return remedy
        seen = seen.__cause__ or seen.__context__
    return ""
