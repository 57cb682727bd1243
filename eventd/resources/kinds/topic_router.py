"""TopicRouter: a router that copies records between topics, under the field names of the API in camelCase."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from eventd.resources.kinds.fields import Flag, Texts
from eventd.resources.kinds.spec import Spec, wrong
from eventd.text.topic_names import GROUP_PREFIX, TOPIC_NAME, is_topic_name


def _check_end(value: str) -> str:
    if not value.strip():
        raise wrong("is required")
    if not is_topic_name(value.removeprefix(GROUP_PREFIX)):
        rule = "must be the name of a topic: 1 to 255 letters, digits or '.', '_', ':', '-'"
        raise wrong(rule, "or group:NAME for the topic of a group")
    return value


def _write_filter(value: str | tuple[str, ...]) -> str | list[str]:
    return value if isinstance(value, str) else [*value]


def _check_filter(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and len(value) == 3 and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise wrong("must be a tag, a tag with a star at its end, or a list of three texts", 'such as [tag, Glob, "a.*"]')


RouterEnd = Annotated[str, AfterValidator(_check_end), WithJsonSchema({"type": "string", "pattern": f"^{TOPIC_NAME}$"})]
"""The name of a topic, also of that of a group."""

TagFilter = Annotated[
    str | tuple[str, ...],
    PlainValidator(_check_filter),
    PlainSerializer(_write_filter, return_type=Any),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3},
            ]
        }
    ),
]


class RouterEventMap(Spec):
    """The templates by which a record becomes an event of a group."""

    type: str = Field(default="", description="Template of the type; absent: the tag of the record.")
    subject: str = Field(default="", description="Template of the subject; absent: none.")
    id: str = Field(default="", description="Template of the id; absent: one that is always the same for a record.")
    payload: Texts = Field(
        default_factory=dict, description="Templates of the payload by key; absent: data and meta of the record."
    )


class TopicRouterSpec(Spec):
    """The spec of a TopicRouter; its name is that of the router."""

    source: RouterEnd = Field(description="The topic to copy from, or group:NAME. It cannot be changed.")
    dest: RouterEnd = Field(description="The topic to copy to, or group:NAME. It cannot be changed.")
    preserve_node: Flag = Field(default=True, description="Whether a copy has the node of its record.")
    preserve_tag: Flag = Field(default=True, description="Whether a copy has the tag of its record.")
    create_dest: Flag = Field(default=True, description="Whether a missing destination is created.")
    filter: TagFilter = Field(
        default="", description="Only records with this tag; a star at its end matches any ending."
    )
    allow_cycle: Flag = Field(
        default=False, description="Whether the router may close a cycle, which records pass a bounded number of times."
    )
    guarantee: Literal["at_least_once", "exactly_once"] = Field(
        default="at_least_once", description="exactly_once names the source record in the meta of each copy."
    )
    fan_in: Flag = Field(
        default=False, description="Whether copies keep record ids, so that no record is copied to a topic twice."
    )
    map: RouterEventMap | None = Field(
        default=None, description="How a record becomes an event, if the destination is the topic of a group."
    )

    def effective(self) -> dict[str, Any]:
        """Return the spec with every default filled in, without members that are absent."""
        return {name: value for name, value in super().effective().items() if value is not None}
