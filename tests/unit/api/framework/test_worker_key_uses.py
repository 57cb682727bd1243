"""The last uses of keys at all workers of a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventd.api.framework.worker_key_uses import WorkerKeyUses
from eventd.api.keys.valid_keys import Keys, KeyUses


class TwoWorkers:
    """The other workers: one that answers with these uses, or does not answer."""

    def __init__(self, answer: KeyUses | None) -> None:
        self._answer = answer
        self._own: Any = None

    def answer_with(self, name: str, answer: Any) -> None:
        self._own = answer

    async def ask_every(self, name: str, question: bytes) -> list[bytes | None]:
        return [await self._own(question), None if self._answer is None else msgspec.json.encode(self._answer)]


class OwnUses(Keys):
    """Keys with these uses at this worker."""

    def __init__(self, found: KeyUses) -> None:
        self._found = found

    def uses(self) -> KeyUses:
        return self._found


@pytest.mark.parametrize(
    ("other", "known"),
    [
        (KeyUses(20, {"a": 50, "b": 30}), KeyUses(20, {"a": 50, "b": 40, "c": 41})),
        (None, None),
    ],
    ids=["another worker saw a later one", "another worker does not answer"],
)
async def test_a_use_is_the_latest_of_all_workers_and_known_since_the_last_of_them_began(
    other: KeyUses | None, known: KeyUses | None
) -> None:
    workers: Any = TwoWorkers(other)
    assert await WorkerKeyUses(OwnUses(KeyUses(10, {"b": 40, "c": 41})), workers).read() == known
