"""The QUIC listener of a measured node, and clients of its streams and caches."""

from __future__ import annotations

from contextlib import closing
from socket import AF_INET, SOCK_DGRAM, socket
from typing import TYPE_CHECKING, Any, Final

from eventd.bench.nodes import Node, OwnNode
from eventd.bench.result import UnverifiedResult
from eventd.bench.wire import cpu_now, now, percentile
from eventd.errors import Invalid
from eventd.quic.library import require

if TYPE_CHECKING:
    from eventd.client import StreamClient

TENANT: Final = "bench"
NAMESPACE: Final = "default"
PATIENCE: Final = 20.0
"""Seconds without any progress after which a measurement ends, and its figures are not valid."""


class QuicNode:
    """A node of the measurement's own that listens for QUIC on a free port of this machine."""

    def __init__(self, node: Node) -> None:
        """Raises `MissingExtra`, and `Invalid` for a node that the measurement does not run itself."""
        require("a measurement of streams or caches")
        if not isinstance(node, OwnNode):
            raise Invalid("this measurement starts a node of its own", hint="leave out --server")
        with closing(socket(AF_INET, SOCK_DGRAM)) as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        node.quic_listen = self._address
        self.node = node

    def client(self, **about: Any) -> StreamClient:
        """Return a client with the node's own key, not yet connected.

        The node's certificate is newly made, so the client accepts any certificate.
        """
        from eventd.client import StreamClient

        return StreamClient(self._address, TENANT, self.node.key, verify=False, patience=PATIENCE, **about)


class QuicTimes:
    """The time and the processor seconds that a measured part takes, of this process and of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._node_cpu = node.cpu_seconds
        self._cpu = cpu_now()
        self.begun = now()

    def result(
        self, count: int, size: int, latencies: list[float], figures: dict[str, float], *, until: float
    ) -> UnverifiedResult:
        """Return the result of `count` operations or deliveries that were finished at the moment `until`."""
        seconds, after = max(until - self.begun, 1e-9), self._node.cpu_seconds
        figures = {"p999_ms": percentile(latencies, 99.9), **figures}
        if self._node_cpu is not None and after is not None:
            figures["node_cpu"] = round((after - self._node_cpu) / seconds, 2)
            figures["node_cpu_us_per_event"] = round((after - self._node_cpu) / max(count, 1) * 1e6, 2)
        busy = (cpu_now() - self._cpu) / seconds
        return UnverifiedResult(count, seconds, latencies, busy, count * size, figures)
