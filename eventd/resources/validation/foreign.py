"""Validates resources of other programs' kinds, and finds the kind that a word on the command line means.

Resources of other programs' kinds are stored unchanged, because plugins may propose, mask or read them. Whether their
specs have a meaning is not checked.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from eventd.errors import NotFound
from eventd.resources.kinds.registry import ALL_KINDS, PART, find_kind, is_foreign, is_misspelt
from eventd.resources.reading.documents import Draft, Identity
from eventd.resources.reading.nodes import Mapping, Node, Scalar, plain
from eventd.resources.reading.nodes import Sequence as Items
from eventd.resources.reading.problems import MOST_FOUND, FieldPath, Problem
from eventd.resources.validation.resource import ForeignResource
from eventd.store.rows.registry import StoredResource
from eventd.text.size import MIB

MAX_SPEC = MIB
"""Maximum bytes of a spec as JSON. The depth of its nesting is limited where documents are read."""
MAX_NAME = 512

MOST_LISTED = 20
"""Maximum number of kinds of other programs that a hint lists."""

FOREIGN_RULE = "is not a group and version such as net.example/v1, which kinds of other programs need"


def is_foreign_draft(draft: Draft) -> bool:
    """Return whether the draft is of another program's kind; False if its kind is a misspelt one of this program."""
    version, kind = draft.node.text("apiVersion") or "", draft.node.text("kind") or ""
    return is_foreign(version, kind) and kind != PART and not is_misspelt(version, kind)


def foreign_resource(draft: Draft) -> ForeignResource:
    """Return the resource of a draft that has no problems."""
    data, metadata = draft.data, draft.data["metadata"]
    identity = Identity(data["apiVersion"], data["kind"], metadata["name"])
    texts = {member: metadata.get(member) or {} for member in ("annotations", "labels")}
    return ForeignResource(identity, texts["annotations"], data["spec"], texts["labels"])


def name_problems(draft: Draft, name: str) -> Iterator[Problem]:
    """Yield problems of the name of a foreign resource, by rules that are freer than for this program's kinds."""
    path = ("metadata", "name")
    if not name.strip():
        yield draft.problem(path, "is required")
    elif len(name) > MAX_NAME:
        yield draft.problem(path, f"is longer than {MAX_NAME} characters")
    elif not name.isprintable():
        yield draft.problem(path, "must not contain line breaks or other unprintable characters")


def spec_problems(draft: Draft) -> Iterator[Problem]:
    """Yield problems of the spec: absent, not a mapping, too long, or with numbers that JSON readers disagree on."""
    spec = draft.node.get("spec")
    if spec is None or (isinstance(spec, Scalar) and spec.value is None):
        yield draft.problem(("spec",), "is required", "write {} for an empty spec")
        return
    if not isinstance(spec, Mapping):
        yield draft.problem(("spec",), "must be a mapping of fields")
        return
    odd = list(islice(_odd_numbers(spec, ("spec",)), MOST_FOUND))
    yield from (draft.problem(path, message) for path, message in odd)
    if not odd and len(json.dumps(plain(spec), ensure_ascii=False, separators=(",", ":")).encode()) > MAX_SPEC:
        yield draft.problem(("spec",), f"is longer than {MAX_SPEC // MIB} MiB")


def _odd_numbers(node: Node, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Yield path and problem of each number that JSON cannot express, or that other programs would read as another."""
    if isinstance(node, Mapping):
        for key, entry in node.entries.items():
            yield from _odd_numbers(entry.node, (*path, key))
    elif isinstance(node, Items):
        for at, item in enumerate(node.items):
            yield from _odd_numbers(item, (*path, at))
    elif isinstance(node.value, float) and not math.isfinite(node.value):
        yield path, "must be a finite number"
    elif isinstance(node.value, int) and not -(2**63) <= node.value < 2**64:
        yield path, "is a whole number that does not fit 64 bits"


KindId = tuple[str, str]
"""An apiVersion and a kind."""


def meant_kinds(word: str, stored: Iterable[StoredResource]) -> Sequence[KindId]:
    """Return apiVersion and kind of what a word means: this program's kind, else foreign kinds of stored resources.

    A foreign kind is also found as `Kind.group` and `Kind.version.group`. Raises NotFound.
    """
    try:
        ours = find_kind(word)
    except NotFound as error:
        kinds = {(row.api_version, row.kind) for row in stored if is_foreign(row.api_version, row.kind)}
        found = sorted(kind for kind in kinds if word.lower() in _words(kind))
        if found:
            return found
        names = {kind.lower(): kind for _, kind in kinds}
        close = difflib.get_close_matches(word.lower(), names, 1)
        if not kinds or not error.hint.startswith(ALL_KINDS):
            raise
        hint = f"did you mean {names[close[0]]}?" if close else _with_others(error.hint, sorted(names.values()))
        raise NotFound(error.message, hint=hint) from error
    return [(ours.api_version, ours.name)]


def _with_others(hint: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"{hint}; of other programs: {', '.join(names[:MOST_LISTED])}{more}"


def _words(kind: KindId) -> tuple[str, ...]:
    group, _, _ = kind[0].partition("/")
    return kind[1].lower(), f"{kind[1]}.{group}".lower(), full_word(kind).lower()


def full_word(kind: KindId) -> str:
    """Return the unambiguous name of a foreign kind: `IPv4Route.v1.net.example`."""
    group, _, version = kind[0].partition("/")
    return f"{kind[1]}.{version}.{group}"
