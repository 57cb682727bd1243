"""Short builders of resources for these tests."""

from __future__ import annotations

from collections.abc import Iterable

from eventd.resources.reading.documents import load_text
from eventd.resources.validation.check import CheckResult, check
from eventd.resources.validation.resource import Declaration
from eventd.store.rows.registry import StoredResource

FEDERATION = "federation.routerd.net/v1alpha1"


def _indented(more: str) -> str:
    return "".join(f"  {line}\n" for line in more.splitlines())


GROUP = """\
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {name: edge}
spec:
  nodeName: onprem
  auth: {secretFile: /etc/eventd/edge.key}
"""

PEER = """\
apiVersion: federation.routerd.net/v1alpha1
kind: EventPeer
metadata: {name: cloud}
spec:
  groupRef: edge
  nodeName: cloud
  endpoint: http://10.99.0.7:8787
"""

PLUGIN = """\
apiVersion: plugin.routerd.net/v1alpha1
kind: Plugin
metadata: {name: claim}
spec:
  executable: /usr/libexec/claim
"""

BACKING = f"{GROUP}---\n{PLUGIN}"
"""What a subscription refers to."""


def subscription(
    more: str = "",
    *,
    match: str = "{types: [routerd.client.ipv4.observed]}",
    trigger: str = "{pluginRef: claim}",
    name: str = "claims",
) -> str:
    """An EventSubscription of group edge; `more` are lines of its spec, written from column 1. They begin on line 8."""
    return f"""\
apiVersion: {FEDERATION}
kind: EventSubscription
metadata: {{name: {name}}}
spec:
  groupRef: edge
  match: {match}
  trigger: {trigger}
{_indented(more)}"""


def callback(
    more: str = "",
    *,
    source: str = "{groupRef: edge}",
    url: str = "https://billing.example/hooks",
    name: str = "billing",
) -> str:
    """An EventCallback of group edge; `more` are lines of its spec, written from column 1. They begin on line 7."""
    return f"""\
apiVersion: {FEDERATION}
kind: EventCallback
metadata: {{name: {name}}}
spec:
  source: {source}
  url: {url}
{_indented(more)}"""


SUBSCRIPTION = subscription()
CALLBACK = callback()
EVERYTHING = f"{GROUP}---\n{PEER}"


def group(more: str = "", *, name: str = "edge", auth: bool = True) -> str:
    """An EventGroup; `more` are lines of its spec, written from column 1. They begin on line 7, or 6 without auth."""
    head = GROUP if auth else GROUP.rpartition("  auth")[0]
    return head.replace("name: edge", f"name: {name}") + _indented(more)


def peer(more: str = "", *, name: str = "cloud", node: str = "cloud") -> str:
    """An EventPeer of group edge; `more` are lines of its spec, written from column 1. They begin on line 8."""
    text = PEER.replace("name: cloud}", f"name: {name}}}").replace("nodeName: cloud", f"nodeName: {node}")
    return text + _indented(more)


def checked(text: str, stored: Iterable[StoredResource] = (), *, prune: bool = False) -> CheckResult:
    """What is found in one file."""
    return check(load_text("a.yaml", text), list(stored), prune=prune)


def problems(text: str, stored: Iterable[StoredResource] = (), *, prune: bool = False) -> list[str]:
    """All problems of one file, as a person sees them, without the file's name."""
    return [str(problem).removeprefix("a.yaml:") for problem in checked(text, stored, prune=prune).problems]


def accepted(text: str, stored: Iterable[StoredResource] = ()) -> tuple[Declaration, ...]:
    """The resources of one file that has no problems."""
    return checked(text, stored).accepted()


def rows(text: str) -> list[StoredResource]:
    """The resources of one file as they are stored."""
    return [row(resource) for resource in accepted(text)]


def row(resource: Declaration) -> StoredResource:
    """A resource as it is stored."""
    version, kind, name = resource.identity
    return StoredResource(version, kind, name, dict(resource.annotations), resource.canonical(), 1, 1, 1)
