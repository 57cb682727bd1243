"""Converts the specs of Topic and TopicRouter to the configurations and routers that they declare, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from pydantic.alias_generators import to_camel

from eventd.egress.routers.projection import EventMap, Router
from eventd.egress.routers.request import request_router
from eventd.errors import EventdError
from eventd.log.core.topic_config import TopicConfig
from eventd.log.topics.config_rules import require_valid
from eventd.resources.kinds.topic import TopicSpec
from eventd.resources.kinds.topic_router import RouterEventMap, TopicRouterSpec
from eventd.resources.reading.documents import Draft
from eventd.resources.reading.problems import Problem
from eventd.resources.validation.check import check_draft
from eventd.resources.validation.resource import Resource
from eventd.text.topic_names import ROUTER_KIND, TOPIC_KIND


class SpecifiedRouter(NamedTuple):
    """The fields of a TopicRouter as requests name them."""

    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: str | list[str] | None
    allow_cycle: bool
    guarantee: str
    fan_in: bool
    map: EventMap | None


def config_of(spec: TopicSpec) -> TopicConfig:
    """Return the configuration that a Topic declares, resolved."""
    fields = {name: getattr(spec, name) for name in TopicConfig.__struct_fields__}
    chosen = {"durability": spec.chosen_durability, "dead_letter": spec.dead_letter or None}
    return TopicConfig(**fields | chosen).resolved()


def router_of_spec(name: str, spec: TopicRouterSpec) -> Router:
    """Return the router that a TopicRouter declares. Raises `Invalid`, and `Incompatible` for its destination."""
    chosen = [*spec.filter] if isinstance(spec.filter, tuple) else spec.filter or None
    asked = SpecifiedRouter(
        spec.source,
        spec.dest,
        spec.preserve_node,
        spec.preserve_tag,
        chosen,
        spec.allow_cycle,
        spec.guarantee,
        spec.fan_in,
        _event_map(spec.map),
    )
    return request_router(name, asked)


def _event_map(templates: RouterEventMap | None) -> EventMap | None:
    if templates is None:
        return None
    return EventMap(
        templates.type or None, templates.subject or None, templates.id or None, dict(templates.payload) or None
    )


def spec_of_config(config: TopicConfig) -> dict[str, Any]:
    """Return the spec of a Topic with this configuration, without defaults."""
    defaults = msgspec.structs.asdict(TopicConfig().resolved())
    fields = msgspec.structs.asdict(config)
    return {to_camel(name): value for name, value in fields.items() if value != defaults[name] and name != "durable"}


def spec_of_router(router: Router) -> dict[str, Any]:
    """Return the spec of a TopicRouter for this router, without defaults."""
    options = msgspec.json.decode(router.options.encode(), type=dict[str, Any])  # lists, as a spec has them
    return {"source": router.source, "dest": router.dest, **{to_camel(name): options[name] for name in options}}


def topic_problems(drafts: Sequence[Draft]) -> Iterator[Problem]:
    """Yield those problems of Topics and TopicRouters that are found by the checks for API requests, not by the
    schema."""
    for draft in drafts:
        if draft.node.text("kind") not in (TOPIC_KIND, ROUTER_KIND):
            continue
        resource = check_draft(draft)
        if not isinstance(resource, Resource):
            continue  # its problems are reported with those of all kinds
        try:
            if isinstance(resource.spec, TopicSpec):
                require_valid(config_of(resource.spec), resource.name)
            elif isinstance(resource.spec, TopicRouterSpec):
                router_of_spec(resource.name, resource.spec)
        except EventdError as error:
            yield draft.problem(("spec",), error.message, error.hint)
