"""Validates drafts, and the references between them and to stored resources; reports all problems at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from pydantic import ValidationError

from eventd.resources.kinds.fields import RESOURCE_NAME, RESOURCE_NAME_RULE, TENANT_NAME_RULE
from eventd.resources.kinds.registry import (
    EVENT_CALLBACK,
    KINDS,
    PART,
    STREAM_TENANT,
    TOPIC,
    Kind,
    is_group_version,
    known_kinds,
)
from eventd.resources.kinds.spec import Spec, section_under
from eventd.resources.reading.documents import Draft, Identity, ReadResult
from eventd.resources.reading.nodes import Mapping, Scalar
from eventd.resources.reading.problems import MOST_FOUND, InvalidResources, Problem
from eventd.resources.validation import references, wording
from eventd.resources.validation.foreign import (
    FOREIGN_RULE,
    foreign_resource,
    is_foreign_draft,
    name_problems,
    spec_problems,
)
from eventd.resources.validation.resource import Declaration, Resource
from eventd.store.rows.callback_cursors import SUBSCRIBER
from eventd.store.rows.registry import StoredResource
from eventd.streams.names import is_name
from eventd.text.topic_names import GROUP_PREFIX, SURFACE_TOPIC

_MEMBERS = ("apiVersion", "kind", "metadata", "spec", "status")
_KEPT_METADATA = ("name", "annotations", "labels")
_IGNORED_METADATA = (
    "uid",
    "generation",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "ownerReferences",
    "ownerRefs",
    "selfLink",
)
_PART_HINT = "parts are created at run time by plugins; list them with routerctl dynamic list"
_MAX_METADATA_TEXT = 256 * 1024
MAX_OWN_VALUES = 10_000
"""Maximum number of values in one resource of this program's kinds."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The valid resources in the given order, and the problems, sorted; after `MOST_FOUND` problems the check ends."""

    resources: tuple[Declaration, ...]
    problems: tuple[Problem, ...]

    def accepted(self) -> tuple[Declaration, ...]:
        """Return the resources. Raises InvalidResources if there is a problem."""
        if self.problems:
            raise InvalidResources(self.problems)
        return self.resources


def check(loaded: ReadResult, stored: Sequence[StoredResource], *, prune: bool = False) -> CheckResult:
    """Validate drafts by their own rules, against each other, and against the stored resources.

    With `prune`, stored resources that are not among the drafts will be deleted and count as absent.
    """
    found: list[Declaration] = []
    problems = sorted(set(islice(_problems(loaded, [] if prune else stored, found), MOST_FOUND)))
    return CheckResult(tuple(found), tuple(problems))


def _problems(loaded: ReadResult, stored: Sequence[StoredResource], found: list[Declaration]) -> Iterator[Problem]:
    """Yield the problems of reading, of each draft and of references; append each valid resource to `found`."""
    yield from loaded.problems
    for draft in loaded.drafts:
        result = check_draft(draft)
        if isinstance(result, list):
            yield from result
        else:
            found.append(result)
    yield from _repeated(loaded.drafts)
    yield from references.check(loaded.drafts, stored, complete=_is_complete(loaded))


def check_draft(draft: Draft) -> Declaration | list[Problem]:
    """Return the resource of a draft, or the problems of the draft itself, without regard to other resources."""
    problems = [*islice(chain(_check_members(draft), _check_metadata(draft)), MOST_FOUND)]
    if is_foreign_draft(draft):
        problems += islice(spec_problems(draft), MOST_FOUND)
        return problems or foreign_resource(draft)
    if draft.node.size > MAX_OWN_VALUES:
        return [draft.problem((), f"contains more than {MAX_OWN_VALUES} values", "declare several smaller resources")]
    kind = _kind_of(draft, problems)
    spec = _read_spec(draft, kind, problems) if kind else None
    if kind is None or spec is None or problems:
        return problems
    metadata = draft.data["metadata"]
    texts = {member: metadata.get(member) or {} for member in ("annotations", "labels")}
    return Resource(kind, metadata["name"], texts["annotations"], spec, texts["labels"])


def _check_members(draft: Draft) -> Iterator[Problem]:
    for key in draft.node.entries:
        if key not in _MEMBERS:
            yield draft.problem((key,), "unknown field", f"a resource has {', '.join(_MEMBERS)}")


def _kind_of(draft: Draft, problems: list[Problem]) -> Kind | None:
    word, version = draft.node.text("kind"), draft.node.text("apiVersion")
    for member, value in (("apiVersion", version), ("kind", word)):
        if not value:
            problems.append(draft.problem((member,), "is required" if _is_absent(draft, member) else "must be text"))
    if not word:
        return None
    kind = KINDS.get(word)
    if word == PART:
        problems.append(draft.problem(("kind",), f"a {PART} cannot be declared", _PART_HINT))
    elif kind is None and version and not is_group_version(version):
        problems.append(draft.problem(("apiVersion",), FOREIGN_RULE, known_kinds(word)))
    elif kind is None:
        problems.append(draft.problem(("kind",), f"unknown kind {word}", known_kinds(word)))
    elif version and version != kind.api_version:
        message = f"{word} is not known in {version}"
        problems.append(draft.problem(("apiVersion",), message, f"write {kind.api_version}"))
    return kind


def _is_absent(draft: Draft, member: str) -> bool:
    node = draft.node.get(member)
    return node is None or (isinstance(node, Scalar) and node.value in (None, ""))


def _check_metadata(draft: Draft) -> Iterator[Problem]:
    metadata = draft.node.get("metadata")
    if metadata is None:
        yield draft.problem(("metadata", "name"), "is required")
    elif not isinstance(metadata, Mapping):
        yield draft.problem(("metadata",), "must be a mapping with a name")
    else:
        yield from _check_name(draft, metadata)
        yield from _check_texts(draft, metadata, "annotations")
        yield from _check_texts(draft, metadata, "labels")
        for key in metadata.entries:
            if key not in _KEPT_METADATA and key not in _IGNORED_METADATA:
                yield draft.problem(("metadata", key), "unknown field", "metadata has a name, annotations and labels")


def _check_name(draft: Draft, metadata: Mapping) -> Iterator[Problem]:
    node = metadata.get("name")
    value = node.value if isinstance(node, Scalar) else node
    path = ("metadata", "name")
    if value is None or value == "":
        yield draft.problem(path, "is required")
    elif not isinstance(value, str):
        yield draft.problem(path, "must be text", "put it in quotes" if isinstance(node, Scalar) else "")
    elif is_foreign_draft(draft):
        yield from name_problems(draft, value)
    else:
        yield from _check_own_name(draft, draft.node.text("kind") or "", value)


def _check_own_name(draft: Draft, word: str, value: str) -> Iterator[Problem]:
    """Yield the problem of a name that no resource of the kind `word` of this program can have."""
    path, kind = ("metadata", "name"), KINDS.get(word)
    if not re.fullmatch(kind.names if kind else RESOURCE_NAME, value):
        is_subscriber = value.startswith(SUBSCRIBER) and kind is EVENT_CALLBACK
        hint = "names with / stand for subscribers of the Routemaster surface" if is_subscriber else ""
        yield draft.problem(path, kind.name_rule if kind else RESOURCE_NAME_RULE, hint)
    elif kind is STREAM_TENANT and not is_name(value):
        yield draft.problem(path, TENANT_NAME_RULE, "it is the name of the tenant in tokens and requests")
    elif kind is TOPIC and value.startswith(GROUP_PREFIX):
        yield draft.problem(path, "must not be the topic of a group", "its retention is declared with the EventGroup")
    elif kind is TOPIC and value == SURFACE_TOPIC:
        yield draft.problem(path, "is the topic of the Routemaster surface", "its limits are settings of the node")


def _check_texts(draft: Draft, metadata: Mapping, member: str) -> Iterator[Problem]:
    """Yield the problems of `annotations` or `labels`: not a mapping, values that are not text, or too much text in
    all keys and values together."""
    node = metadata.get(member)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return
    if not isinstance(node, Mapping):
        yield draft.problem(("metadata", member), "must be a mapping of texts")
        return
    for key in node.entries:
        if node.text(key) is None:
            hint = "put it in quotes" if isinstance(node.get(key), Scalar) else ""
            yield draft.problem(("metadata", member, key), "must be text", hint)
    if sum(len(key) + len(node.text(key) or "") for key in node.entries) > _MAX_METADATA_TEXT:
        yield draft.problem(("metadata", member), f"is longer than {_MAX_METADATA_TEXT} characters")


def _read_spec(draft: Draft, kind: Kind, problems: list[Problem]) -> Spec | None:
    data = _without_null(draft.data.get("spec"), kind.spec)
    if data is None:
        problems.append(draft.problem(("spec",), "is required"))
        return None
    try:
        return kind.spec.model_validate(data)
    except ValidationError as error:
        found = wording.findings(error, kind.spec)
        problems += [draft.problem(finding.path, finding.message, finding.hint) for finding in found]
        return None


def _without_null(value: Any, section: type[Spec] | None) -> Any:
    """Return the value without fields that are null, which count as absent.

    In a mapping whose keys are free, such as `env`, null stays: it is refused there.
    """
    if isinstance(value, list):
        return [_without_null(inner, section) for inner in value]
    if not isinstance(value, dict) or section is None:
        return value
    return {key: _without_null(inner, section_under(section, key)) for key, inner in value.items() if inner is not None}


def _is_complete(loaded: ReadResult) -> bool:
    """Return whether the whole input was understood; if not, a resource that seems missing may be in the rest."""
    return not loaded.problems and all(
        draft.identity and (draft.identity.kind in KINDS or is_foreign_draft(draft)) for draft in loaded.drafts
    )


def _repeated(drafts: Sequence[Draft]) -> Iterator[Problem]:
    first: dict[Identity, Draft] = {}
    for draft in drafts:
        identity = draft.identity
        if identity is None:
            continue
        other = first.setdefault(identity, draft)
        if other is not draft:
            place = f"{other.source}:{other.node.line}"
            yield draft.problem(("metadata", "name"), f"{identity} is declared twice, first at {place}")
