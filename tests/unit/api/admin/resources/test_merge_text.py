"""The diff from the declared resources to the effective ones, and its bounds."""

from __future__ import annotations

from eventd.api.admin.resources.merge_text import MOST_CHARACTERS, MOST_RESOURCES, write_merge
from eventd.dynamic.merge import Effective, merge
from eventd.dynamic.prepared import prepare, prepare_startup
from eventd.store.rows.registry import StoredResource
from eventd.testing import NOW
from tests.unit.dynamic.samples import allow, declared, mask, route, stored_part

SOURCE = "EventSubscription/a/1"


def merged(startup: list[StoredResource], *names: str, masking: str = "", **spec: str) -> Effective:
    part = stored_part(SOURCE, [route(name, **spec) for name in names], directives=[mask(masking)] if masking else [])
    return merge(prepare_startup(startup), [prepare(part)], [allow(SOURCE, masking)], NOW)


def test_a_masked_resource_is_removed_and_a_derived_one_added() -> None:
    startup = [declared("stays"), declared("old", destination="10.0.0.0/8")]
    text, whole = write_merge(merged(startup, "new", masking="old"), startup)
    assert whole
    assert "--- declared/IPv4Route/old\n+++ effective/IPv4Route/old\n" in text
    assert "\n-  destination: 10.0.0.0/8\n" in text
    assert "\n+  name: new\n" in text
    assert "stays" not in text


def test_nothing_derived_is_an_empty_diff() -> None:
    assert write_merge(merged([declared("a")]), [declared("a")]) == ("", True)


def test_the_diff_of_many_or_large_resources_ends_early_and_says_so() -> None:
    text, whole = write_merge(merged([], *(f"r{at:04}" for at in range(MOST_RESOURCES + 1))), [])
    assert (text.count("+++ "), whole) == (MOST_RESOURCES, False)
    text, whole = write_merge(merged([], "a", "b", note="x" * (MOST_CHARACTERS * 2 // 3)), [])
    assert (text.count("+++ "), whole) == (1, False)
