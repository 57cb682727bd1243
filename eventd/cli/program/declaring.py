"""Adds parameters to a command's function for typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def declare(
    run: Callable[..., None], command: Callable[..., Any], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Give `run` these parameters, and the name and help of `command`; returns `run`."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__wrapped__ = command  # type: ignore[attr-defined]
    return run
