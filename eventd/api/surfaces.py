"""All operations, from every surface."""

from __future__ import annotations

from typing import Any

from eventd.api import (
    dead_letters,
    deliveries,
    dynamic,
    events,
    groups,
    keys,
    links,
    plugins,
    redelivery,
    resources,
    subscriptions,
)
from eventd.api.doctor import operations as doctor
from eventd.api.operations import Operation

OPERATIONS: tuple[Operation[Any], ...] = (
    *groups.OPERATIONS,
    *resources.OPERATIONS,
    *events.OPERATIONS,
    *deliveries.OPERATIONS,
    *redelivery.OPERATIONS,
    *links.OPERATIONS,
    *dead_letters.OPERATIONS,
    *doctor.OPERATIONS,
    *subscriptions.OPERATIONS,
    *dynamic.OPERATIONS,
    *plugins.OPERATIONS,
    *keys.OPERATIONS,
)
