"""DynamicOverridePolicy: which parts may mask which declared resources, so that these take no effect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eventd.resources.kinds.fields import Reference
from eventd.resources.kinds.plugin import ResourceReference
from eventd.resources.kinds.spec import Spec, wrong


def _exact(value: str) -> str:
    if "*" in value:
        raise wrong(
            "is compared as a whole, so * would match nothing",
            "an owner such as EventSubscription/NAME stands for all of its parts",
        )
    return value


class Allowance(Spec):
    """What one part, or all parts of one owner, may do."""

    source: Annotated[Reference, AfterValidator(_exact)] = Field(
        description="The source of a part, or an owner such as EventSubscription/NAME for all of its parts."
    )
    operations: tuple[Literal["mask"], ...] = Field(
        default=(), description="The permitted operations; only mask exists."
    )
    targets: tuple[ResourceReference, ...] = Field(default=(), description="The declared resources that may be masked.")


class DynamicOverridePolicySpec(Spec):
    """The spec of a DynamicOverridePolicy."""

    allow: tuple[Allowance, ...] = Field(default=(), description="The permissions; everything else is denied.")
