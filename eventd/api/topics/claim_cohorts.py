"""Collects the claims that arrive within a queue's `claim_jitter_ms` and submits them together, so that no single
client gets all the jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from eventd.api.topics.calls import V0
from eventd.log.queues.units import ClaimJobs, ClaimResult, JobRequest

Member = tuple[JobRequest, asyncio.Future[ClaimResult]]


class ClaimCohorts:
    """The claims of this process that wait to be submitted together, by queue name."""

    def __init__(self, v0: V0) -> None:
        self._v0 = v0
        self._waiting: dict[str, list[Member]] = {}

    def waiting(self, queue: str) -> int:
        """Return the number of claims on a queue that wait to be submitted together."""
        return len(self._waiting.get(queue, ()))

    async def claim(self, queue: str, wish: JobRequest) -> ClaimResult:
        """Claim jobs for one node, immediately or together with other claims. Raises what `ClaimJobs` does.

        The `jobs` of the result have one list, for this claim.
        """
        claimed = await self._v0.log.submit(self._claim(queue, [wish], gathered=False))
        return await self._join(queue, wish, claimed.gather_ms / 1000) if claimed.gather_ms else claimed

    def _claim(self, queue: str, wishes: Sequence[JobRequest], *, gathered: bool = True) -> ClaimJobs:
        return ClaimJobs(queue, wishes, self._v0.log.chance.token, gathered=gathered, ceilings=self._v0.limits.ceilings)

    async def _join(self, queue: str, wish: JobRequest, seconds: float) -> ClaimResult:
        future: asyncio.Future[ClaimResult] = asyncio.get_running_loop().create_future()
        members = self._waiting.setdefault(queue, [])
        members.append((wish, future))
        if len(members) == 1:
            # Runs once: an error is answered to all claims.
            self._v0.supervisor.spawn(self._gather(queue, seconds), f"claims of {queue}")
        return await future

    async def _gather(self, queue: str, seconds: float) -> None:
        await self._v0.clock.sleep(seconds)
        members = [(wish, future) for wish, future in self._waiting.pop(queue) if not future.done()]
        try:
            claimed = await self._v0.log.submit(self._claim(queue, [wish for wish, _ in members]))
        except Exception as error:
            for _, future in members:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), jobs in zip(members, claimed.jobs, strict=True):
            if not future.done():
                future.set_result(claimed._replace(jobs=[jobs]))
