"""A command's function made to take more options than its source names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def declare(
    run: Callable[..., None], command: Callable[..., Any], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """`run` with these parameters, which typer reads, in the name and the words of `command`."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__wrapped__ = command  # type: ignore[attr-defined]
    return run
