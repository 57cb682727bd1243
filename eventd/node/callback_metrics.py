"""Counts the deliveries of callbacks.

Deliveries to subscribers of the Routemaster surface are also counted in the surface's own metrics.
"""

from __future__ import annotations

from eventd.egress.callbacks.delivery import EndpointRequest
from eventd.observe.callback_figures import CallbackFigures
from eventd.observe.routemaster_figures import RoutemasterFigures
from eventd.observe.traffic import Traffic
from eventd.store.rows.callback_cursors import SUBSCRIBER


class DeliveryMetrics:
    """The `CallbackMetrics` of a process. Times are in microseconds."""

    def __init__(self, callbacks: CallbackFigures, surface: RoutemasterFigures, traffic: Traffic) -> None:
        self._callbacks = callbacks
        self._surface = surface
        self._traffic = traffic

    def attempted(self, callback: str, request: EndpointRequest) -> None:
        """Count a request to an endpoint."""
        self._callbacks.attempted(callback, request.duration, request.reason)
        self._traffic.requested(callback, failed=bool(request.reason))
        if handle := _handle(callback):
            delivered = not request.reason
            self._surface.attempted(handle, request.duration, request.events, delivered=delivered)
            if request.waited is not None:
                self._surface.waited(handle, request.waited, first=request.first, delivered=delivered)

    def delivered(self, callback: str, events: int, lag: int) -> None:
        """Count accepted events; the oldest was recorded `lag` microseconds ago."""
        self._callbacks.delivered(callback, events, lag)
        self._traffic.accepted(callback, events)

    def refused(self, callback: str, events: int) -> None:
        """Count events that became dead letters."""
        self._callbacks.refused(callback, events)

    def postponed(self, callback: str, events: int) -> None:
        """Count a batch of this many events that waits for the end of a back-off."""
        if handle := _handle(callback):
            self._surface.postponed(handle, events)

    def forget(self, callback: str) -> None:
        """Remove the metrics of a callback that this process no longer serves."""
        self._callbacks.forget(callback)
        if handle := _handle(callback):
            self._surface.forget(handle)

    def lost(self, callback: str, events: int) -> None:
        """Count events that retention removed before they could be sent."""
        if handle := _handle(callback):
            self._surface.lost(handle, events)


def _handle(callback: str) -> str:
    """Return the handle of the subscriber that a callback of this name serves; empty for a declared callback."""
    return callback.removeprefix(SUBSCRIBER) if callback.startswith(SUBSCRIBER) else ""
