"""One node with streams for the tests of a file, and a session of each test with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.processes import Processes
from tests.support.stream_nodes import Session, StreamNode, session


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamNode]:
    """A node with the streams `default/orders` and `default/notes`; at the end it works, and its log has no faults."""
    processes = Processes(tmp_path_factory.mktemp("streams"))
    try:
        running = StreamNode(processes, "node")
        running.create("default/orders")
        running.create("default/notes")
        yield running
        assert running.ready()
        assert running.faults() == []
        assert running.stop() == 0
    finally:
        processes.close()


@pytest.fixture
async def line(node: StreamNode) -> AsyncIterator[Session]:
    """A connection whose token allows everything of the tenant; it must outlive the test."""
    async with session(node) as found:
        yield found
        await found.client.alive()
