"""Adds up the rates of all workers of a node."""

from __future__ import annotations

import msgspec

from eventd.api.framework.worker_peers import WorkerPeers
from eventd.observe.rates import RateFilter, RateHistory, RatePage, add_pages

_QUESTION = "rates"


class WorkerRates:
    """The rates of a node: the sum of this worker's rates and of those that the other workers report."""

    def __init__(self, history: RateHistory, workers: WorkerPeers) -> None:
        self._history = history
        self._workers = workers
        workers.answer_with(_QUESTION, self._answer)

    async def _answer(self, question: bytes) -> bytes:
        return msgspec.json.encode(self._history.read(msgspec.json.decode(question, type=RateFilter)))

    async def read(self, question: RateFilter) -> tuple[RatePage, bool]:
        """Return the first series that pass the filter, and whether all workers have answered."""
        answers = await self._workers.ask_every(_QUESTION, msgspec.json.encode(question))
        pages = [msgspec.json.decode(answer, type=RatePage) for answer in answers if answer is not None]
        return add_pages(pages, question.limit), None not in answers
