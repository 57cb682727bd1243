"""A gateway that goes down takes its route with it: the declared route is masked while the gateway stays down."""

from __future__ import annotations

from collections.abc import Iterator

from eventd.plugins import Emit, Event, Mask


def plugin(events: list[Event]) -> Iterator[Mask | Emit]:
    """The whole batch at once, because only the last word about a gateway counts.

    A gateway `north` has the route `via-north`. What is down is masked and told to everybody. The mask holds until the
    event that said so expires: whoever watches the gateway says `down` again as long as it is.
    """
    latest = {event.subject: event for event in events}
    for gateway, event in sorted(latest.items()):
        if event.payload.get("state") == "down" and gateway.isidentifier():
            yield Mask("net.example/v1", "IPv4Route", f"via-{gateway}", reason=f"{gateway} is down")
            yield Emit(
                type="route.masked",
                subject=gateway,
                message=f"the route via {gateway} is masked",
                attributes={"because": event.id},
            )
