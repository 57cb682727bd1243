"""Where the changes of an apply are put into words."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eventd.api.admin.resources import resources
from eventd.api.framework.operations import Services


@pytest.mark.parametrize("operation", ["apply", "diff"])
async def test_the_loop_does_not_compute_the_differences(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    computed = list[int]()

    def shown(**_options: Any) -> list[Any]:
        computed.append(threading.get_ident())
        return []

    async def apply(*_: Any, **_options: Any) -> Any:
        return SimpleNamespace(shown=shown)

    monkeypatch.setattr(resources.ResourceChanger, "apply", apply)
    services = cast(Services, SimpleNamespace(limits=None))
    sources = [resources.Source(name="f", text="")]
    if operation == "apply":
        await resources.apply(services, resources.Apply(sources=sources))
    else:
        await resources.diff(services, resources.Diff(sources=sources))
    assert computed
    assert threading.get_ident() not in computed
