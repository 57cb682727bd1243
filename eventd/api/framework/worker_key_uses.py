"""When the keys of the API were last used at any worker of a node. It is in memory: a request writes nothing."""

from __future__ import annotations

import msgspec

from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.keys.valid_keys import Keys, KeyUses

_QUESTION = "key-uses"


class WorkerKeyUses:
    """The uses of keys at a node: the latest of this worker's uses and of those that the other workers report."""

    def __init__(self, keys: Keys, workers: WorkerPeers) -> None:
        self._keys = keys
        self._workers = workers
        workers.answer_with(_QUESTION, self._answer)

    async def _answer(self, _question: bytes) -> bytes:
        return msgspec.json.encode(self._keys.uses())

    async def read(self) -> KeyUses | None:
        """Return the uses; None if a worker does not answer: it may have seen later ones."""
        answers = await self._workers.ask_every(_QUESTION, b"")
        found = [msgspec.json.decode(answer, type=KeyUses) for answer in answers if answer is not None]
        if None in answers:
            return None
        latest: dict[str, int] = {}
        for one in found:
            for digest, at in one.latest.items():
                latest[digest] = max(at, latest.get(digest, at))
        return KeyUses(max(one.since for one in found), latest)
