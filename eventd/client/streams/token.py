"""The token of a client: a text, a file, or a function that returns the current token."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from eventd.errors import SecretUnreadable
from eventd.runtime.regular_files import NotRegular, read_regular

Token = str | Path | Callable[[], str | Awaitable[str]]
_MOST_BYTES: Final = 64 << 10


class TokenSource:
    """Returns the token for each stream that is opened, so that streams opened after a renewal use the new token."""

    def __init__(self, token: Token) -> None:
        self._token = token

    async def read(self) -> str:
        """Return the current token.

        Raises `SecretUnreadable` for a file that cannot be used, and any exception of the function.
        """
        token = self._token
        if isinstance(token, str):
            return token
        if isinstance(token, Path):
            return await asyncio.to_thread(_read_file, token)
        found = token()
        return await found if inspect.isawaitable(found) else found


def _read_file(path: Path) -> str:
    try:
        text = read_regular(path, _MOST_BYTES + 1).content.decode("ascii").strip()
    except NotRegular:
        raise SecretUnreadable(f"{path} is not a file", hint="name a file that contains a token") from None
    except OSError as error:
        raise SecretUnreadable(f"cannot read {path}: {error.strerror}", hint="check the path of the token") from None
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > _MOST_BYTES:
        raise SecretUnreadable(f"{path} does not contain a token", hint="name a file that contains a token")
    return text
