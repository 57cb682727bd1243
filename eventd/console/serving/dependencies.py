"""The dependencies of the console of a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eventd.api.framework.callers import Callers
from eventd.api.framework.operations import Services
from eventd.api.framework.recorder import ActionRecorder
from eventd.api.topics.calls import V0
from eventd.settings.model import Settings


@dataclass(frozen=True, slots=True)
class ConsoleDependencies:
    """The dependencies of the console of a node. `version`: of the program; `address` returns that of the API."""

    services: Services
    v0: V0
    callers: Callers
    recorder: ActionRecorder
    settings: Settings
    version: str
    address: Callable[[], str]
