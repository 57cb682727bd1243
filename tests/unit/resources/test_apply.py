from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from eventd.errors import Conflict, Invalid, NotFound
from eventd.resources.apply import Action, Plan, apply_loaded, delete_resources, plan, plan_delete
from eventd.resources.reading.documents import Identity, load_text
from eventd.resources.reading.problems import InvalidResources
from eventd.resources.reading.yaml_text import write_yaml
from eventd.resources.validation.resource import from_stored
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import StoredResource, read_resources, read_version
from eventd.store.schema.tables import log_heads, metadata
from tests.unit.resources.samples import (
    BACKING,
    EVERYTHING,
    FEDERATION,
    GROUP,
    PEER,
    SUBSCRIPTION,
    accepted,
    group,
    peer,
    rows,
    subscription,
)

EDGE = Identity(FEDERATION, "EventGroup", "edge")
CLOUD = Identity(FEDERATION, "EventPeer", "cloud")


def outcome(planned: Plan) -> list[str]:
    return [f"{change.identity} {change.action}" for change in planned.changes]


def planned(text: str, stored: list[StoredResource], *, prune: bool = False) -> list[str]:
    return outcome(plan(accepted(text, stored), stored, prune=prune))


def test_what_is_new_is_created_in_the_order_of_the_input() -> None:
    assert planned(f"{PEER}---\n{GROUP}", []) == ["EventPeer/cloud created", "EventGroup/edge created"]


def test_what_is_stored_already_is_unchanged() -> None:
    again = plan(accepted(EVERYTHING), rows(EVERYTHING))
    assert outcome(again) == ["EventGroup/edge unchanged", "EventPeer/cloud unchanged"]
    assert not again.writes
    assert again.diff() == ""
    assert again.count(Action.UNCHANGED) == 2


SAME_GROUPS = [
    group(),
    group("replayWindow: 5m"),
    group("replayWindow: 5m0s"),
    group("replayWindow: 300s"),
    group("replayWindow: 0"),
    group("replayWindow:"),
    group("protocols: [v2, v1]"),
    group("listen: {}"),
    group("listen: {address: '', port: 0}"),
    group("retention: {maxAge: -1s, maxEvents: 0, ids: 24h}"),
    group("limits: {maxEventBytes: 1048576, maxBatchBytes: 8192KiB}"),
    group("auth: {mode: hmac, secretFile: /etc/eventd/edge.key, keys: []}", auth=False),
]


@given(st.sampled_from(SAME_GROUPS), st.sampled_from(SAME_GROUPS))
def test_the_same_meaning_in_other_words_is_unchanged(before: str, after: str) -> None:
    assert planned(after, rows(before)) == ["EventGroup/edge unchanged"]


@pytest.mark.parametrize("endpoint", ["http://10.99.0.7:8787/", "HTTP://10.99.0.7:8787//"])
def test_the_same_endpoint_in_other_words_is_unchanged(endpoint: str) -> None:
    text = PEER.replace("http://10.99.0.7:8787", endpoint)
    assert planned(text, rows(EVERYTHING)) == ["EventPeer/cloud unchanged"]


@pytest.mark.parametrize(
    "text",
    [
        group("replayWindow: 6m"),
        group("protocols: [v1]"),
        group("retention: {undelivered: drop}"),
        GROUP.replace("edge.key", "other.key"),
        GROUP.replace("name: edge}", "name: edge, annotations: {a: b}}"),
    ],
)
def test_another_meaning_is_configured(text: str) -> None:
    assert planned(text, rows(GROUP)) == ["EventGroup/edge configured"]
    assert planned(GROUP, rows(text)) == ["EventGroup/edge configured"]


def test_defaults_are_not_stored_and_texts_are_canonical() -> None:
    more = "replayWindow: 90s\nretention: {}\nlimits: {maxBatchBytes: 16777216}\nlisten: {address: ''}"
    [resource] = accepted(group(more))
    assert resource.canonical() == {
        "nodeName": "onprem",
        "auth": {"secretFile": "/etc/eventd/edge.key"},
        "replayWindow": "1m30s",
        "limits": {"maxBatchBytes": "16MiB"},
    }


def test_a_default_that_was_written_is_kept_as_written() -> None:
    [resource] = accepted(group("replayWindow: 5m"))
    assert resource.canonical()["replayWindow"] == "5m0s"


def test_a_stored_row_that_cannot_be_read_any_more_is_configured() -> None:
    [row] = rows(GROUP)
    broken = StoredResource(row.api_version, row.kind, row.name, {}, {"nodeName": 5}, 1, 1, 1)
    assert planned(GROUP, [broken]) == ["EventGroup/edge configured"]


@pytest.mark.parametrize(
    ("before", "after", "limits"),
    [
        ("", "types: [dns.*]", ["types dns.*"]),
        ("types: [a, b]", "types: [a]\nsubjectPrefixes: [x]", ["types a", "subjects that begin with x"]),
        ("relay: true", "", ["events that entered the log at this node"]),
        ("types: [a]", "types: [a, b]", []),
    ],
)
def test_a_filter_that_lets_in_less_says_to_what_it_is_limited(before: str, after: str, limits: list[str]) -> None:
    stored = rows(f"{GROUP}---\n{peer(before)}")
    (change,) = plan(accepted(peer(after), stored), stored).changes
    assert change.narrows() == limits


def test_the_diff_shows_what_changes_as_yaml() -> None:
    stored = rows(EVERYTHING)
    changed = plan(accepted(f"{group('replayWindow: 10m')}---\n{peer('types: [a, no]')}", stored), stored)
    assert changed.diff() == (
        "--- stored/EventGroup/edge\n"
        "+++ applied/EventGroup/edge\n"
        "@@ -6,3 +6,4 @@\n"
        "   nodeName: onprem\n"
        "   auth:\n"
        "     secretFile: /etc/eventd/edge.key\n"
        "+  replayWindow: 10m0s\n"
        "--- stored/EventPeer/cloud\n"
        "+++ applied/EventPeer/cloud\n"
        "@@ -6,3 +6,6 @@\n"
        "   groupRef: edge\n"
        "   nodeName: cloud\n"
        "   endpoint: http://10.99.0.7:8787\n"
        "+  types:\n"
        "+    - a\n"
        "+    - 'no'\n"
    )


def test_the_diff_of_what_is_created_or_deleted_shows_all_of_it() -> None:
    created = plan(accepted(GROUP), []).diff()
    assert [line for line in created.splitlines() if not line.startswith("+")] == [
        "--- stored/EventGroup/edge",
        "@@ -0,0 +1,8 @@",
    ]
    deleted = plan_delete([EDGE], rows(GROUP)).diff()
    assert deleted.splitlines()[3] == "-apiVersion: federation.routerd.net/v1alpha1"


def test_pruning_deletes_what_is_not_in_the_input_peers_first() -> None:
    stored = rows(EVERYTHING)
    assert planned(group(name="other"), stored, prune=True) == [
        "EventGroup/other created",
        "EventPeer/cloud deleted",
        "EventGroup/edge deleted",
    ]
    assert planned(group(name="other"), stored) == ["EventGroup/other created"]


def test_pruning_deletes_resources_of_other_programs_too() -> None:
    foreign = StoredResource("net.example/v1", "Route", "x", {}, {}, 1, 1, 1)
    assert planned(GROUP, [foreign], prune=True) == ["EventGroup/edge created", "Route/x deleted"]
    assert planned(GROUP, [foreign]) == ["EventGroup/edge created"]


def test_pruning_with_an_empty_input_needs_to_be_meant() -> None:
    with pytest.raises(Conflict) as refused:
        plan([], rows(EVERYTHING), prune=True)
    assert str(refused.value) == (
        "the input contains no resources: pruning would delete all 2 that are stored "
        "(check the input, or use --force, in the API allowEmpty)"
    )
    assert outcome(plan([], rows(EVERYTHING), prune=True, allow_empty=True)) == [
        "EventPeer/cloud deleted",
        "EventGroup/edge deleted",
    ]
    assert outcome(plan([], [], prune=True)) == []


def test_deleting_what_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFound, match=r"^EventGroup/edge does not exist$"):
        plan_delete([EDGE], [])
    with pytest.raises(NotFound, match=r"EventPeer/clod does not exist \(did you mean cloud\?\)"):
        plan_delete([CLOUD._replace(name="clod")], rows(EVERYTHING))


def test_a_group_with_peers_is_deleted_only_together_with_them() -> None:
    with pytest.raises(Conflict) as refused:
        plan_delete([EDGE], rows(f"{EVERYTHING}---\n{peer(name='b', node='b')}"))
    assert str(refused.value) == (
        "EventGroup/edge still has peers: EventPeer/b, EventPeer/cloud (delete those first, or together with it)"
    )
    assert outcome(plan_delete([EDGE, CLOUD, EDGE], rows(EVERYTHING))) == [
        "EventPeer/cloud deleted",
        "EventGroup/edge deleted",
    ]
    assert outcome(plan_delete([CLOUD], rows(EVERYTHING))) == ["EventPeer/cloud deleted"]


def test_what_a_subscription_refers_to_is_deleted_only_together_with_it() -> None:
    stored = rows(f"{BACKING}---\n{SUBSCRIPTION}---\n{subscription(name='b')}---\n{PEER}")
    hint = "(delete those first, or together with it)"
    plugin = Identity("plugin.routerd.net/v1alpha1", "Plugin", "claim")
    claims = Identity(FEDERATION, "EventSubscription", "claims")
    with pytest.raises(Conflict) as refused:
        plan_delete([plugin], stored)
    assert str(refused.value) == (f"Plugin/claim is still used: EventSubscription/b, EventSubscription/claims {hint}")
    with pytest.raises(Conflict) as refused:
        plan_delete([EDGE, claims], stored)
    assert str(refused.value) == f"EventGroup/edge is still used: EventPeer/cloud, EventSubscription/b {hint}"
    assert outcome(plan_delete([EDGE, plugin, CLOUD, claims, claims._replace(name="b")], stored)) == [
        "EventSubscription/b deleted",
        "EventSubscription/claims deleted",
        "Plugin/claim deleted",
        "EventPeer/cloud deleted",
        "EventGroup/edge deleted",
    ]


@contextmanager
def registry() -> Iterator[Connection]:
    """An empty registry in memory, in an open transaction."""
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection, checkfirst=False)
        connection.execute(
            log_heads.insert().values(id=1, next_position=1, epoch="e", incarnation=1, registry_version=1)
        )
        yield Connection("sqlite", connection.connection.driver_connection, lambda: connection)
    engine.dispose()


@pytest.fixture
def conn() -> Iterator[Connection]:
    with registry() as connection:
        yield connection


def stored_names(conn: Connection) -> list[tuple[str, int]]:
    return [(row.name, row.generation) for row in read_resources(conn)]


def test_applying_writes_what_is_planned_and_tells_the_nodes(conn: Connection) -> None:
    version = read_version(conn)
    assert outcome(apply_loaded(conn, load_text("a.yaml", EVERYTHING), now=7)) == [
        "EventGroup/edge created",
        "EventPeer/cloud created",
    ]
    assert stored_names(conn) == [("edge", 1), ("cloud", 1)]
    assert read_version(conn) == version + 1
    assert read_resources(conn)[0].spec == {"nodeName": "onprem", "auth": {"secretFile": "/etc/eventd/edge.key"}}
    assert read_resources(conn)[0].created_at == 7


def test_applying_again_changes_nothing_and_tells_nobody(conn: Connection) -> None:
    apply_loaded(conn, load_text("a.yaml", EVERYTHING), now=7)
    version = read_version(conn)
    again = apply_loaded(conn, load_text("a.yaml", EVERYTHING), now=8)
    assert outcome(again) == ["EventGroup/edge unchanged", "EventPeer/cloud unchanged"]
    assert stored_names(conn) == [("edge", 1), ("cloud", 1)]
    assert read_version(conn) == version


def test_a_change_raises_the_generation_of_what_changed_only(conn: Connection) -> None:
    apply_loaded(conn, load_text("a.yaml", EVERYTHING), now=7)
    apply_loaded(conn, load_text("a.yaml", EVERYTHING + "  relay: true\n"), now=8)
    assert stored_names(conn) == [("edge", 1), ("cloud", 2)]


def test_nothing_is_written_when_anything_is_wrong(conn: Connection) -> None:
    with pytest.raises(InvalidResources) as refused:
        apply_loaded(conn, load_text("a.yaml", f"{EVERYTHING}  relay: 5\n  types: 5\n"), now=7)
    assert str(refused.value) == (
        "2 problems in the declared resources, nothing was changed:\n"
        "  a.yaml:15: EventPeer/cloud spec.relay: must be true or false, not 5\n"
        "  a.yaml:16: EventPeer/cloud spec.types: must be a list, not 5"
    )
    assert len(refused.value.problems) == 2
    assert stored_names(conn) == []


def test_a_dry_run_writes_nothing(conn: Connection) -> None:
    assert apply_loaded(conn, load_text("a.yaml", EVERYTHING), now=7, dry_run=True).writes
    assert stored_names(conn) == []
    apply_loaded(conn, load_text("a.yaml", EVERYTHING), now=7)
    delete_resources(conn, [CLOUD], now=8, dry_run=True)
    assert len(stored_names(conn)) == 2


def test_an_empty_input_is_an_error(conn: Connection) -> None:
    with pytest.raises(Invalid, match=r"^the input contains no resources"):
        apply_loaded(conn, load_text("a.yaml", "# nothing\n"), now=7)


def test_pruning_and_deleting_remove_rows(conn: Connection) -> None:
    apply_loaded(conn, load_text("a.yaml", EVERYTHING), now=7)
    apply_loaded(conn, load_text("a.yaml", GROUP), now=8, prune=True)
    assert stored_names(conn) == [("edge", 1)]
    delete_resources(conn, [EDGE], now=9)
    assert stored_names(conn) == []


INPUTS = [
    *(f"{text}---\n{PEER}" for text in SAME_GROUPS),
    f"{group('protocols: [v2]')}---\n{peer('relay: true')}",
    f"{group('retention: {maxAge: 1h}')}---\n{peer('types: [a]')}---\n{peer(name='far', node='far')}",
    EVERYTHING.replace("name: edge}", "name: edge, annotations: {a: b}}"),
]


@given(st.lists(st.sampled_from(INPUTS), min_size=1, max_size=4), st.booleans())
def test_planning_what_was_applied_changes_nothing(texts: list[str], prune: bool) -> None:
    with registry() as conn:
        for text in texts:
            apply_loaded(conn, load_text("a.yaml", text), now=1, prune=prune)
            assert not apply_loaded(conn, load_text("a.yaml", text), now=2, prune=prune).writes


@given(st.sampled_from(INPUTS))
def test_what_is_stored_can_be_shown_and_applied_again(text: str) -> None:
    stored = rows(text)
    shown = "---\n".join(write_yaml(from_stored(row).document()) for row in stored)
    assert not plan(accepted(shown, stored), stored, prune=True).writes
    assert [row.spec for row in rows(shown)] == [row.spec for row in stored]
