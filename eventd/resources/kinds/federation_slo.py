"""FederationSLO: how late a group's deliveries may be, and how many runs may wait or have failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from eventd.resources.kinds.fields import GroupName, Whole
from eventd.resources.kinds.spec import Finding, Spec
from eventd.text.size import LARGEST

LAG_WARN = 60
LAG_FAIL = 180
EXPIRES_SOON = 120
_LONGEST = 10**9
"""The longest bound in seconds, about 31 years."""


def _or(default: int) -> AfterValidator:
    return AfterValidator(lambda value: value or default)


_Seconds = Annotated[Whole, Field(ge=0, le=_LONGEST)]
_Count = Annotated[Whole, Field(ge=0, le=LARGEST)]


class DeliverySlo(Spec):
    """Bounds of delivery, in seconds."""

    lag_warn_seconds: Annotated[_Seconds, _or(LAG_WARN)] = Field(
        default=LAG_WARN, description="A delivery that takes this long or longer is a warning; 0 means the default."
    )
    lag_fail_seconds: Annotated[_Seconds, _or(LAG_FAIL)] = Field(
        default=LAG_FAIL, description="A delivery that takes this long or longer is a failure; 0 means the default."
    )
    expires_soon_seconds: Annotated[_Seconds, _or(EXPIRES_SOON)] = Field(
        default=EXPIRES_SOON,
        description="An event that expires within this time is a failure if undelivered, else a warning; 0: default.",
    )

    def findings(self) -> Iterator[Finding]:
        warn, fail = self.lag_warn_seconds, self.lag_fail_seconds
        if warn >= fail:
            # Reported at a field that was written: the other one may be a default.
            field = "lagWarnSeconds" if "lag_warn_seconds" in self.model_fields_set else "lagFailSeconds"
            message = f"lagWarnSeconds must be less than lagFailSeconds, but {warn} is not less than {fail}"
            yield Finding((field,), message, f"the defaults are {LAG_WARN} and {LAG_FAIL}")


class SubscriptionSlo(Spec):
    """Bounds of the runs of each subscription of the group."""

    max_pending_runs: _Count = Field(
        default=0, description="More pending runs of a subscription than this are a warning."
    )
    max_failed_runs: _Count = Field(
        default=0, description="More failed runs of a subscription than this are a failure."
    )


class FederationSloSpec(Spec):
    """The spec of a FederationSLO."""

    group_ref: GroupName = Field(description="The name of the EventGroup; one FederationSLO per group.")
    delivery: DeliverySlo = Field(default_factory=DeliverySlo, description="Bounds of delivery.")
    subscription: SubscriptionSlo = Field(
        default_factory=SubscriptionSlo, description="Bounds of the subscriptions' runs."
    )
