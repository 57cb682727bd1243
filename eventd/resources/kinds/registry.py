"""The kinds this node knows. A new kind is a module with its model, and an entry here."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache

from eventd.errors import NotFound
from eventd.resources.kinds.event_callback import EventCallbackSpec
from eventd.resources.kinds.event_group import EventGroupSpec
from eventd.resources.kinds.event_peer import EventPeerSpec
from eventd.resources.kinds.event_subscription import EventSubscriptionSpec
from eventd.resources.kinds.federation_slo import FederationSloSpec
from eventd.resources.kinds.fields import RESOURCE_NAME, RESOURCE_NAME_RULE, ROUTER_NAME_RULE, TOPIC_NAME_RULE
from eventd.resources.kinds.override_policy import DynamicOverridePolicySpec
from eventd.resources.kinds.plugin import DynamicConfigSourceSpec, PluginSpec
from eventd.resources.kinds.spec import Spec
from eventd.resources.kinds.stream_cache import StreamCacheSpec
from eventd.resources.kinds.stream_tenant import StreamTenantSpec
from eventd.resources.kinds.topic import TopicSpec
from eventd.resources.kinds.topic_router import TopicRouterSpec
from eventd.text.topic_names import ROUTER_KIND, ROUTER_NAME, TOPIC_KIND, TOPIC_NAME, TOPICS_VERSION

FEDERATION = "federation.routerd.net/v1alpha1"
PLUGINS = "plugin.routerd.net/v1alpha1"
STREAMS = "stream.routerd.net/v1alpha1"
CONFIG = "config.routerd.net/v1alpha1"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind: its apiVersion, the model of its spec, its names on a command line, and what it declares.

    `names` is the regular expression of the names of its resources, and `name_rule` states it.
    """

    name: str
    api_version: str
    spec: type[Spec]
    plural: str
    declares: str
    short: tuple[str, ...] = ()
    names: str = RESOURCE_NAME
    name_rule: str = RESOURCE_NAME_RULE


EVENT_GROUP = Kind(
    "EventGroup",
    FEDERATION,
    EventGroupSpec,
    "eventgroups",
    "A group that this node is a member of, and the node's name in it.",
    ("group", "groups", "eg"),
)
EVENT_PEER = Kind(
    "EventPeer",
    FEDERATION,
    EventPeerSpec,
    "eventpeers",
    "Another node of a group, to which this node sends.",
    ("peer", "peers", "ep"),
)
PLUGIN = Kind("Plugin", PLUGINS, PluginSpec, "plugins", "A program that turns events into configuration.")
EVENT_SUBSCRIPTION = Kind(
    "EventSubscription",
    FEDERATION,
    EventSubscriptionSpec,
    "eventsubscriptions",
    "Events of a group for which a plugin runs.",
    ("subscription", "subscriptions", "sub", "subs", "es"),
)
EVENT_CALLBACK = Kind(
    "EventCallback",
    FEDERATION,
    EventCallbackSpec,
    "eventcallbacks",
    "An HTTP endpoint that the events of a group, or the records of a topic, are pushed to.",
    ("callback", "callbacks", "webhook", "webhooks", "ec"),
)
STREAM_TENANT = Kind(
    "StreamTenant",
    STREAMS,
    StreamTenantSpec,
    "streamtenants",
    "A tenant of streams and caches: the keys that sign its tokens, and who gets tokens.",
    ("tenant", "tenants", "st"),
)
STREAM_CACHE = Kind(
    "StreamCache",
    STREAMS,
    StreamCacheSpec,
    "streamcaches",
    "A cache in memory, and its limits.",
    ("cache", "caches", "sc"),
)
TOPIC = Kind(
    TOPIC_KIND,
    TOPICS_VERSION,
    TopicSpec,
    "topics",
    "A topic of records, and its configuration.",
    names=TOPIC_NAME,
    name_rule=TOPIC_NAME_RULE,
)
TOPIC_ROUTER = Kind(
    ROUTER_KIND,
    TOPICS_VERSION,
    TopicRouterSpec,
    "topicrouters",
    "A router, which copies the records of one topic to another.",
    ("router", "routers", "tr"),
    names=ROUTER_NAME,
    name_rule=ROUTER_NAME_RULE,
)
FEDERATION_SLO = Kind(
    "FederationSLO",
    FEDERATION,
    FederationSloSpec,
    "federationslos",
    "The delivery objectives of a group.",
    ("slo", "slos"),
)
DYNAMIC_CONFIG_SOURCE = Kind(
    "DynamicConfigSource",
    PLUGINS,
    DynamicConfigSourceSpec,
    "dynamicconfigsources",
    "A plugin that runs at intervals, and how long its results are valid.",
    ("dcs",),
)
DYNAMIC_OVERRIDE_POLICY = Kind(
    "DynamicOverridePolicy",
    CONFIG,
    DynamicOverridePolicySpec,
    "dynamicoverridepolicies",
    "Which sources may mask which resources.",
    ("dop",),
)

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        EVENT_GROUP,
        EVENT_PEER,
        PLUGIN,
        EVENT_SUBSCRIPTION,
        TOPIC,
        TOPIC_ROUTER,
        EVENT_CALLBACK,
        STREAM_TENANT,
        STREAM_CACHE,
        FEDERATION_SLO,
        DYNAMIC_CONFIG_SOURCE,
        DYNAMIC_OVERRIDE_POLICY,
    )
}
"""By name. A kind stands before the kinds that refer to it."""

PART = "DynamicConfigPart"
"""The kind as which plugins' proposals are shown; a part is created at run time and cannot be declared."""

_OUR_GROUPS = frozenset(kind.api_version.partition("/")[0] for kind in KINDS.values())
_OUR_NAMES = frozenset(name.lower() for name in KINDS)
_API_VERSION = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?/[A-Za-z0-9][A-Za-z0-9._-]*")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,126}")


def is_group_version(api_version: str) -> bool:
    """Return whether an apiVersion has the form `group/version`."""
    return bool(_API_VERSION.fullmatch(api_version))


def is_ours(api_version: str) -> bool:
    """Return whether the part of an apiVersion before the slash is one that kinds of this program have."""
    return api_version.partition("/")[0].lower() in _OUR_GROUPS


@lru_cache(maxsize=1024)
def is_foreign(api_version: str, kind: str) -> bool:
    """Return whether this is the kind of another program, whose resources are kept unchanged.

    Its apiVersion has the form `group/version`, with a `group` that no kind of this program has, and its name is not
    that of a kind of this program.
    """
    return (
        is_group_version(api_version)
        and bool(_KIND.fullmatch(kind))
        and not is_ours(api_version)
        and kind.lower() not in _OUR_NAMES
    )


@lru_cache(maxsize=1024)
def is_misspelt(api_version: str, kind: str) -> bool:
    """Return whether apiVersion and kind resemble those of one of this program: a misspelling, not a foreign kind."""
    group = api_version.partition("/")[0].lower()
    return bool(
        difflib.get_close_matches(group, _OUR_GROUPS, 1, 0.9) and difflib.get_close_matches(kind.lower(), _OUR_NAMES, 1)
    )


def find_kind(word: str) -> Kind:
    """Return the kind meant by `EventPeer`, `eventpeers`, `peer` …, in upper or lower case. Raises NotFound."""
    wanted = word.lower()
    for kind in KINDS.values():
        if wanted in (kind.name.lower(), kind.plural, *kind.short):
            return kind
    before, slash, name = word.partition("/")
    apart = f"separate kind and name with a blank: {before} {name}" if before and slash and name else ""
    raise NotFound(f"unknown kind {word}", hint=apart or known_kinds(word))


ALL_KINDS = "known kinds: "
"""How a hint begins that names all kinds."""


def known_kinds(word: str) -> str:
    """Return a hint for an unknown kind: the kind that was probably meant, or the names of all kinds."""
    names = {name.lower(): name for name in KINDS}
    close = difflib.get_close_matches(word.lower(), [*names, *(kind.plural for kind in KINDS.values())], 1)
    meant = next((kind.name for kind in KINDS.values() if close and close[0] in (kind.name.lower(), kind.plural)), None)
    return f"did you mean {meant}?" if meant else f"{ALL_KINDS}{', '.join(KINDS)}"
