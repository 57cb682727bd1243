"""The handler of a route and the models of its parameters and response, read from its signature.

An operation is `async def name(services: Services, params: SomeParams) -> dict[str, Any]`: `routerctl` calls it without
HTTP, too. Other handlers take a call, which names their context, the model of the query and that of the body: `async
def name(call: Call[MyQuery, MyBody]) -> MyAnswer`. `Annotated[web.Response, Model]` is the return type of a handler
that writes its response itself.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from eventd.api.framework.models import NoQuery
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.route import Handler, Route


class Endpoint(NamedTuple):
    """A loaded handler. `context`: the type of its first parameter, without type arguments.

    `params`: the model of an operation's parameters; None for a call. `query`, `body`: the models of a call; None for
    an operation, and `body` also for a call without one. `answer`: the model of the response; None if there is none.
    """

    run: Handler
    context: type
    params: type[Params] | None
    query: Any
    body: Any
    answer: Any


@cache
def load(route: Route) -> Endpoint:
    """Import the handler of a route, and return it with the models that its signature names."""
    run = _find(route.handler) if isinstance(route.handler, str) else route.handler
    hints = get_type_hints(run, include_extras=True)
    answer, (first, *others) = _model(hints.pop("return")), hints.values()
    if first is Services:
        return Endpoint(run, Services, others[0], None, None, answer)
    *_, query, body = get_args(first) or (NoQuery, None)
    return Endpoint(run, get_origin(first) or first, None, query, _model(body), answer)


def _find(place: str) -> Handler:
    module, _, name = place.partition(":")
    handler: Handler = getattr(import_module(f"eventd.api.{module}"), name)
    return handler


def _model(hint: Any) -> Any:
    """Return the model in the metadata of an `Annotated` hint, or the hint if it is a model or a dict; else None."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[1]
    is_model = hasattr(hint, "__struct_fields__") or get_origin(hint) is dict
    return hint if is_model else None
