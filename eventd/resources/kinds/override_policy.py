"""DynamicOverridePolicy: which sources may mask which declared resources."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eventd.resources.kinds.fields import Reference
from eventd.resources.kinds.plugin import ResourceReference
from eventd.resources.kinds.spec import Spec, wrong


def _exact(value: str) -> str:
    if "*" in value:
        raise wrong("is compared whole, so * would match nothing", "an owner such as EventSubscription/NAME means all")
    return value


class Allowance(Spec):
    """What one source may do."""

    source: Annotated[Reference, AfterValidator(_exact)] = Field(
        description="A source, or an EventSubscription/NAME for all that this subscription makes."
    )
    operations: tuple[Literal["mask"], ...] = Field(default=(), description="What it may do; only mask is known.")
    targets: tuple[ResourceReference, ...] = Field(default=(), description="To which declared resources.")


class DynamicOverridePolicySpec(Spec):
    """The spec of a DynamicOverridePolicy."""

    allow: tuple[Allowance, ...] = Field(default=(), description="What is allowed; all else is not.")
