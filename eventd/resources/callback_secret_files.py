"""Reads the files of callbacks' secrets in separate threads: the files may lie on a file system that does not
answer."""

from __future__ import annotations

import asyncio
import os.path
from functools import partial
from pathlib import Path
from typing import Final

from eventd.errors import SecretUnreadable
from eventd.resources.callback_configuration import CallbackConfig
from eventd.resources.callback_keys import LoadedSecrets, load_callback_secrets
from eventd.runtime.blocking_calls import BlockingCalls
from eventd.runtime.threads import ThreadFactory

READ_SECONDS: Final = 10.0
"""Seconds after which files that could not be read yet count as unreadable."""


class CallbackSecretFiles:
    """Reads the secrets of callbacks in separate threads. `credentials` is the service manager's folder of secrets.

    A read that hangs blocks one thread and the callback that needs the file, but nothing else.
    """

    def __init__(self, threads: ThreadFactory, credentials: Path | None, seconds: float = READ_SECONDS) -> None:
        self._calls = BlockingCalls(threads, "secrets")
        self._credentials = credentials
        self._seconds = seconds
        self._generation = 0

    def forget(self) -> None:
        """Let the next reads open the files again, and not share the result of reads that are under way."""
        self._generation += 1

    async def read(self, config: CallbackConfig) -> LoadedSecrets:
        """Return the secrets of a callback. Raises `SecretUnreadable`, which names the callback and the file."""
        files = [*(key.secret_file for key in config.keys), config.password_file, config.bearer_file]
        named = [file for file in files if file]
        if not named:
            return load_callback_secrets(config, self._credentials)
        key = repr(
            (self._generation, config.name, config.keys, config.username, config.password_file, config.bearer_file)
        )
        place = os.path.dirname(named[0])
        try:
            async with asyncio.timeout(self._seconds):
                return await self._calls.run(key, place, partial(load_callback_secrets, config, self._credentials))
        except TimeoutError:
            words = f"EventCallback {config.name!r}: not read within {self._seconds:g} s: {', '.join(named)}"
            raise SecretUnreadable(words, hint="check the file system of the files, then send SIGHUP") from None
        except OSError as error:  # the files' own errors have been translated
            raise SecretUnreadable(
                f"EventCallback {config.name!r}: its files cannot be read: {error.strerror}"
            ) from None

    async def close(self) -> None:
        """Close the reader: no further reads are started."""
        self._calls.close()
