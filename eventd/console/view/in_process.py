"""A node seen from its own process: operations run without HTTP, with the checks that HTTP requests pass."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any, Final

from eventd.api.framework.acting import describe
from eventd.api.framework.action_callers import ActionCaller
from eventd.api.framework.action_terms import object_of
from eventd.api.framework.admission import admit, services_for
from eventd.api.framework.auth import ApiKey
from eventd.api.framework.endpoint import load
from eventd.api.framework.operations import Services
from eventd.api.framework.params import read_params
from eventd.api.framework.recorder import ActionDraft, ActionRecorder
from eventd.api.framework.route import Route
from eventd.api.routes import OPERATIONS
from eventd.errors import Unavailable

PATIENCE_SECONDS: Final = 30.0
"""Maximum duration of one operation: those that ask a peer or run a plugin take longest."""
_NAMES: Final = re.compile(r"{(\w+)}")


class InProcessView:
    """The node of this process, with the permissions of a key.

    What `caller` changes is recorded by `recorder`, under the id of the `request`.
    """

    def __init__(
        self, services: Services, key: ApiKey, name: str, recorder: ActionRecorder, caller: ActionCaller, request: str
    ) -> None:
        self._services = services
        self._key = key
        self._name = name
        self._recorder = recorder
        self._caller = caller
        self._request = request

    @property
    def name(self) -> str:
        return self._name

    def may(self, operation: str, group: str = "") -> bool:
        route = OPERATIONS[operation]
        return self._key.scopes.issuperset(route.scopes) and (not group or self._key.sees(group))

    def sees(self, name: str) -> bool:
        return self._key.sees(name)

    async def call(self, operation: str, **params: Any) -> Any:
        route = OPERATIONS[operation]
        names = {name: str(params.get(name, "")) for name in _NAMES.findall(route.path)}
        if not route.recorded:
            return await self._run(operation, route, names, params)
        draft = ActionDraft(operation, self._caller, self._request, object_of(route, names), outside=route.outside)
        async with self._recorder.recording(draft):
            return await self._run(operation, route, names, params, draft)

    async def _run(
        self,
        operation: str,
        route: Route,
        names: dict[str, str],
        params: dict[str, Any],
        draft: ActionDraft | None = None,
    ) -> Any:
        admit(route, names, self._key)
        endpoint = load(route)
        assert endpoint.params is not None
        checked = read_params(endpoint.params, params)
        run = partial(endpoint.run, services_for(self._services, checked, self._key), checked)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                if draft is None:
                    return await run()
                describe(draft, route, names, checked)
                return await self._recorder.perform(draft, run)
        except TimeoutError:
            raise Unavailable(f"{operation} took longer than {PATIENCE_SECONDS:.0f} s", hint="try again") from None
