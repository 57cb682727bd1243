"""JSON Schemas of the plugin contract, generated from models; that of the answer also checks answers.

`python -m eventd.plugins.contract.schemas FOLDER` writes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from eventd.plugins.contract.form import ActionPlan, Answer, Directive, Fields, Form, Name, ProposedResource, Time

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class Trigger(Form):
    """The reason for a run."""

    type: Literal["federation-subscription", "manual", "interval"] = Field(
        description="A subscription, a command, or a schedule."
    )
    topic: str = Field(description="routerd.federation.subscription/NAME in a subscription's run; otherwise empty.")


class GivenEvent(Form):
    """An event. Times are RFC 3339 in UTC; 0001-01-01T00:00:00Z as expiresAt means never."""

    id: str = Field(description="Unique in its group.")
    group: str = Field(description="The EventGroup.")
    source_node: str = Field(default="", description="The node or program that observed it; absent if unknown.")
    type: str = Field(description="The type of the event, with dots.")
    subject: str = Field(default="", description="What it is about; may be absent.")
    dedupe_key: str = Field(default="", description="Groups events about one thing.")
    payload: dict[str, str] = Field(default={}, description="Its details; may be absent.")
    observed_at: Time = Field(description="When it was observed.")
    expires_at: Time = Field(description="When it expires.")


class GivenResource(Form):
    """A declared resource without its secrets."""

    api_version: Name = Field(description="Its apiVersion.")
    kind: Name = Field(description="Its kind.")
    name: Name = Field(description="Its name.")
    spec: Fields = Field(description="The content.")


class Context(Form):
    """The part of the configuration that the plugin may see."""

    resources: list[GivenResource] = Field(default=[], description="Absent if the plugin receives none.")


class RequestSpec(Form):
    """The content of a request."""

    trigger: Trigger = Field(description="What triggered the run.")
    startup_config_hash: str = Field(description="SHA-256 of the declared resources; empty in a subscription's run.")
    effective_generation: int = Field(
        description="The generation of the effective configuration; 0 in a subscription's run."
    )
    previous_dynamic_generation: int = Field(
        description="The generation of the part that this run replaces; 0 without one, and in a subscription's run."
    )
    now: Time = Field(description="The node's time.")
    events: list[GivenEvent] = Field(default=[], description="At most 1024; absent if there are none.")
    context: Context = Field(description="The part of the configuration that the plugin receives.")


class PluginName(Form):
    """The metadata of a request: which Plugin it is for."""

    name: Name = Field(description="The name of the Plugin.")


class Request(Form):
    """What an executable plugin reads: one JSON object on its standard input."""

    api_version: Literal["plugin.routerd.net/v1alpha1"] = Field(description="The version of this form.")
    kind: Literal["PluginRequest"] = Field(description="What this is.")
    metadata: PluginName = Field(description="The plugin.")
    spec: RequestSpec = Field(description="The content of the request.")


class PartName(Form):
    """The metadata of the part."""

    name: Name = Field(description="The source with dashes, and the generation.")


class PartSpec(Form):
    """A plugin's proposal, its source, and the time at which it ends."""

    source: str = Field(
        description="EventSubscription/NAME/DIGEST; without events Plugin/NAME or DynamicConfigSource/NAME."
    )
    generation: int = Field(description="Rises with each run without events, else with each result that differs.")
    observed_at: Time = Field(description="When the result was observed.")
    expires_at: Time = Field(description="It is in effect before this time.")
    digest: str = Field(description="SHA-256, in hex, of resources and directives as proposed.")
    resources: list[ProposedResource] = Field(description="Added resources.")
    directives: list[Directive] = Field(description="Changes of declared resources.")
    action_plans: list[ActionPlan] = Field(default=[], description="Proposed actions at providers.")


class Part(Form):
    """A stored result. The node creates it; it is never declared."""

    api_version: Literal["config.routerd.net/v1alpha1"] = Field(description="The version of this form.")
    kind: Literal["DynamicConfigPart"] = Field(description="What this is.")
    metadata: PartName = Field(description="The name of the part.")
    spec: PartSpec = Field(description="The content.")


FILES: Final[dict[str, type[BaseModel]]] = {"request.json": Request, "result.json": Answer, "part.json": Part}


def schema_text(form: type[BaseModel]) -> str:
    """Return the JSON Schema of a model as the text of its file."""
    schema: dict[str, Any] = form.model_json_schema(by_alias=True)
    return json.dumps({"$schema": _DIALECT, **schema}, indent=2, ensure_ascii=False) + "\n"


def main(folder: str) -> None:
    """Write every schema into the folder, which is created if missing."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, form in FILES.items():
        Path(folder, name).write_text(schema_text(form), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
