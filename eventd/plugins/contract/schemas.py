"""JSON Schemas of the plugin contract, generated from the models that check it.

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
        description="By a subscription, by hand, or by the clock."
    )
    topic: str = Field(description="routerd.federation.subscription/NAME; otherwise blank.")


class GivenEvent(Form):
    """An event. Times are RFC 3339 in UTC; 0001-01-01T00:00:00Z as expiresAt means never."""

    id: str = Field(description="Unique in its group.")
    group: str = Field(description="The EventGroup.")
    source_node: str = Field(default="", description="Who observed it; absent when nobody says so.")
    type: str = Field(description="What kind of fact it is, with dots.")
    subject: str = Field(default="", description="What it is about; may be absent.")
    dedupe_key: str = Field(default="", description="Groups facts about one thing.")
    payload: dict[str, str] = Field(default={}, description="Its details; may be absent.")
    observed_at: Time = Field(description="When it was observed.")
    expires_at: Time = Field(description="When it stops being of use.")


class GivenResource(Form):
    """A declared resource without its secrets."""

    api_version: Name = Field(description="Its apiVersion.")
    kind: Name = Field(description="Its kind.")
    name: Name = Field(description="Its name.")
    spec: Fields = Field(description="What it says.")


class Context(Form):
    """The part of the configuration that the plugin may see."""

    resources: list[GivenResource] = Field(default=[], description="Absent where nothing is shown.")


class RequestSpec(Form):
    """The content of a request."""

    trigger: Trigger = Field(description="Why the plugin is run.")
    startup_config_hash: str = Field(description="SHA-256 of what is declared; blank in a subscription's run.")
    effective_generation: int = Field(description="Of the effective configuration; 0 in a subscription's run.")
    previous_dynamic_generation: int = Field(description="Of the part of the last such run; 0 in a subscription's run.")
    now: Time = Field(description="The node's time.")
    events: list[GivenEvent] = Field(default=[], description="At most 1024; absent where there are none.")
    context: Context = Field(description="What of the configuration the plugin is shown.")


class PluginName(Form):
    """The plugin to run."""

    name: Name = Field(description="The name of the Plugin.")


class Request(Form):
    """What a plugin reads: one JSON object on its standard input."""

    api_version: Literal["plugin.routerd.net/v1alpha1"] = Field(description="The version of this form.")
    kind: Literal["PluginRequest"] = Field(description="What this is.")
    metadata: PluginName = Field(description="Which plugin is meant.")
    spec: RequestSpec = Field(description="What the run is about.")


class PartSpec(Form):
    """The proposal of a plugin and its end."""

    source: str = Field(description="EventSubscription/NAME/DIGEST, or Plugin/NAME for a run by hand.")
    generation: int = Field(description="Counts what this source has said.")
    observed_at: Time = Field(description="When it was found out.")
    expires_at: Time = Field(description="It holds until just before this.")
    digest: str = Field(description="SHA-256 of resources and directives, in hex.")
    resources: list[ProposedResource] = Field(description="What is added.")
    directives: list[Directive] = Field(description="What happens to declared resources.")
    action_plans: list[ActionPlan] = Field(default=[], description="What could be done at providers.")


class Part(Form):
    """A stored result. The node creates it; it is never declared."""

    api_version: Literal["config.routerd.net/v1alpha1"] = Field(description="The version of this form.")
    kind: Literal["DynamicConfigPart"] = Field(description="What this is.")
    metadata: PluginName = Field(description="The source with dashes, and the generation.")
    spec: PartSpec = Field(description="What it says.")


FILES: Final[dict[str, type[BaseModel]]] = {"request.json": Request, "result.json": Answer, "part.json": Part}


def schema_text(form: type[BaseModel]) -> str:
    """Return the schema as the text of its file."""
    schema: dict[str, Any] = form.model_json_schema(by_alias=True)
    return json.dumps({"$schema": _DIALECT, **schema}, indent=2, ensure_ascii=False) + "\n"


def main(folder: str) -> None:
    """Write every schema into the folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, form in FILES.items():
        Path(folder, name).write_text(schema_text(form), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
