"""What the consumer of a subscriber of the Routemaster surface depends on."""

from __future__ import annotations

from eventd.node.callbacks import purposes_of_subscribers
from eventd.resources.subscriber_configuration import SubscriberLimits
from eventd.store.rows.routemaster import Interval, SubscriberRow


def test_a_consumer_depends_on_each_part_of_a_subscription_and_not_on_what_is_counted() -> None:
    row = SubscriberRow("app--1", "https://app.example/", "uuid", 500, 100, version=3, intervals=(Interval("a", 1),))
    other = [
        row._replace(callback="https://app.example/else"),
        row._replace(uuid="another"),
        row._replace(timeout_ms=0),
        row._replace(max_events=1),
        row._replace(version=4),
        row._replace(intervals=(Interval("a", 1), Interval("b", 2))),
    ]
    (purpose,) = purposes_of_subscribers([row], SubscriberLimits()).values()
    assert purposes_of_subscribers([row._replace(sent=9, updated_at=9)], SubscriberLimits()) == {"rm/app--1": purpose}
    for changed in other:
        assert purposes_of_subscribers([changed], SubscriberLimits()) != {"rm/app--1": purpose}, changed
    assert "uuid" not in repr(purpose)
