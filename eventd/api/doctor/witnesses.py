"""Checks the witnesses of histories: who cosigns, which keys are known, and findings that are not confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eventd.api.doctor.report import Check, CheckStatus
from eventd.egress.cursors import link_name
from eventd.log.core.topic_row import find_topic
from eventd.log.cursors.cursors import read_cursors
from eventd.log.history.trees import find_open_tree
from eventd.log.witnesses.checking import read_overdue
from eventd.log.witnesses.cosignatures import OLDER, REFUSED, STALE, Witness, read_witness_ages, read_witnesses
from eventd.log.witnesses.findings import FindingKind, HistoryFinding, read_holder, read_open
from eventd.log.witnesses.keys import LOG, StoredKey, read_known_keys, show_key
from eventd.log.witnesses.unproven import MOST_LOOKED, UnprovenEvents, read_unproven
from eventd.log.witnesses.waiting import WaitingTree, read_waiting
from eventd.log.witnesses.witnessed import read_witnessed
from eventd.resources.group_configuration import GroupConfig, PeerConfig, topic_of
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.text.arguments import as_argument
from eventd.text.duration import DAY, HOUR, format_duration
from eventd.text.plural import counted
from eventd.witnessing.signing_gate import LAKE
from federation.history.lake_witnessing import is_of_files
from federation.history.witnessing import KeySource
from federation.peers import PROTOCOL_V1

NOT_COSIGNED = HOUR
"""From this age of what a peer has not cosigned, in microseconds, it is reported."""
CHECKED_WITHIN = 60 * SECOND
"""From this delay of a check on, in microseconds, it is reported."""
COVERED_WITHIN = 120 * SECOND
"""From this age of an event on, in microseconds, it is reported that nothing covers it yet."""
MOST_SHOWN = 5
"""How many findings of each kind a group's checks list: the newest."""
_CODES = {
    FindingKind.FORK: "history-fork",
    FindingKind.REFUTED: "history-refuted",
    FindingKind.ROLLED_BACK: "history-rolled-back",
    FindingKind.OLDER_COPY: "history-older-copy",
    FindingKind.UNPROVEN: "history-unproven",
}
_RESET = "routerctl log witnesses reset {node} --group {group}"


@dataclass(frozen=True, slots=True)
class WitnessState:
    """What is known of a group's witnesses. `ages`: for how many microseconds each peer has not cosigned.

    `overdue`: for how many microseconds events should have been checked; None if they are not checked. `pins`: whether
    the key of any tree is declared. `waiting`: trees for which events wait that are to be checked. `node` is the name
    of this node, `peers` are those of its declared peers, and `v1_peers` those that bring no proofs. `unproven`: events
    of the last day that nothing proves.
    """

    group: str
    witnesses: list[Witness]
    ages: dict[str, int]
    keys: list[StoredKey]
    held_nodes: list[str]
    findings: list[HistoryFinding]
    overdue: int | None = None
    pins: bool = True
    waiting: list[WaitingTree] = field(default_factory=list)
    unproven: list[UnprovenEvents] = field(default_factory=list)
    node: str = "THIS-NODE"
    peers: Sequence[str] = ()
    v1_peers: Sequence[str] = ()


def read_witness_state(conn: Connection, group: GroupConfig, now: int) -> WitnessState | None:
    """Return what is known of the witnesses of a group; None if it keeps no history."""
    topic = find_topic(conn, topic_of(group.name)) if group.keeps_history else None
    if topic is None:
        return None
    tree = find_open_tree(conn, topic.id)
    return WitnessState(
        group.name,
        [] if tree is None else read_witnesses(conn, tree.id),
        read_witness_ages(conn, topic.id, now),
        read_known_keys(conn, topic.id, group.history_pins),
        sorted({one.node for one in read_witnessed(conn, topic.id)}),
        read_open(conn, topic.id, limit=MOST_SHOWN),
        read_overdue(conn, topic.id, now) if group.verifies_history else None,
        any(kind == LOG for _, kind in group.history_pins),
        read_waiting(conn, topic.id, group.name, group.history_pins, now) if group.verifies_history else [],
        read_unproven(conn, topic.id, group.name, now - DAY) if group.verifies_history else [],
        group.node_name,
        sorted(peer.node_name for peer in group.peers.values()),
        [peer.node_name for peer in group.peers.values() if _speaks_v1(conn, group.name, peer)],
    )


def _speaks_v1(conn: Connection, group: str, peer: PeerConfig) -> bool:
    """Return whether a peer speaks v1 alone, as declared or as the link has found: its events come without proofs."""
    found = read_cursors(conn, name=link_name(group, peer.node_name)) if peer.protocol == "auto" else []
    return peer.protocol == PROTOCOL_V1 or any(cursor.protocol == PROTOCOL_V1 for cursor in found)


def check_witnesses(state: WitnessState, *, running: bool = True) -> Iterator[Check]:
    """Yield the checks of a group's witnesses that have something to say. Only a `running` node can be late."""
    for witness in state.witnesses:
        yield from _check_witness(state, witness)
    for key in state.keys:
        if key.refused is not None:
            yield Check(
                f"{state.group}/{key.node} history key",
                CheckStatus.FAIL,
                "history-key-changed",
                f"{key.node} shows the {key.kind} key {show_key(key.kind, key.refused)}; the known key is"
                f" {show_key(key.kind, key.key)} ({key.source}), and {key.node} did not sign a change to the other key"
                " with it",
                _confirm_key(state.group, key.node, key.source),
                group=state.group,
                peer=key.node,
            )
    yield from _check_findings(state)
    yield from _check_verifying(state, running=running)
    yield from _note_weak(state)


def _confirm_key(group: str, node: str, source: str) -> str:
    ask, reset = "ask the operator of the node; if the new key is right,", _RESET.format(node=node, group=group)
    if source == KeySource.PINNED:  # a reset forgets no declared key
        return (
            f"{ask} pin it in place of the known one, in spec.history of the EventGroup or of the EventPeer; if the"
            f" known one is right and in use again, forget the other one: {reset}"
        )
    return (
        f"{ask} pin it in spec.history.keys of the EventGroup, or: {reset}; if the known key is right, pin that one"
        " first, because after a reset the next key that is shown is taken over"
    )


def _check_witness(state: WitnessState, witness: Witness) -> Iterator[Check]:
    name = f"{state.group}/{witness.peer} witness"
    if witness.state == STALE:
        yield Check(
            name,
            CheckStatus.WARN,
            "history-stale",
            f"nothing connects the {counted(witness.size, 'leaf', 'leaves')} that the"
            f" peer holds with the tree any more: {witness.detail}",
            "at the peer, run `routerctl log witnesses reset` for this node",
            group=state.group,
            peer=witness.peer,
        )
    elif witness.state == REFUSED:
        yield Check(
            name,
            CheckStatus.WARN,
            "history-refused",
            f"the peer does not cosign: {witness.detail}",
            "see what doctor and `routerctl log witnesses` say at the peer",
            group=state.group,
            peer=witness.peer,
        )
    elif state.ages.get(witness.peer, 0) >= NOT_COSIGNED:
        age = format_duration(state.ages[witness.peer])
        is_older = witness.state == OLDER
        yield Check(
            name,
            CheckStatus.WARN,
            "history-not-cosigned",
            f"for {age}, the peer has not cosigned what was signed{f': {witness.detail}' if is_older else ''}",
            "upgrade the peer, or let it keep a history: history.mode of the EventGroup there"
            if is_older
            else "see the link to the peer, and the metric history_cosignatures_total",
            group=state.group,
            peer=witness.peer,
        )


def _check_verifying(state: WitnessState, *, running: bool) -> Iterator[Check]:
    """Yield what keeps mode `verify` from proving anything, or from doing it in time."""
    if state.overdue is None:
        return
    name = f"{state.group} history"
    if not state.pins:
        detail = "events are checked, but no logKey of another node is pinned: what comes over a relay stays unproven"
        remedy = "pin the keys in spec.history.keys of the EventGroup; at the node, `routerctl log keys` prints its key"
        yield Check(name, CheckStatus.WARN, "history-verify-unpinned", detail, remedy, group=state.group)
    if running and state.overdue > CHECKED_WITHIN:
        detail = f"events have waited for {format_duration(state.overdue // SECOND * SECOND)} for their check"
        remedy = "see if the node runs and how busy it is, and its log"
        yield Check(name, CheckStatus.WARN, "history-check-behind", detail, remedy, group=state.group)
    if running:
        late = [one for one in state.waiting if one.age > COVERED_WITHIN]
        for one in late[:MOST_SHOWN]:
            yield _check_waiting(state.group, one)
        if len(late) > MOST_SHOWN:
            more = counted(len(late) - MOST_SHOWN, "further tree")
            detail = f"events of {more} have waited for more than 2 minutes for their check as well"
            remedy = (
                f"routerctl federation event list --group {state.group} --history waiting --include-expired lists them"
            )
            yield Check(name, CheckStatus.WARN, "history-check-waiting", detail, remedy, group=state.group)
    for unproven in state.unproven:
        yield _check_unproven(state.group, unproven, speaks_v1=unproven.sender in state.v1_peers)


def _check_unproven(group: str, unproven: UnprovenEvents, *, speaks_v1: bool) -> Check:
    """Return that a node brought events without what proves them: a relay that forges some can withhold it."""
    sender, node = unproven.sender, unproven.node
    some = counted(unproven.events, "event")
    if speaks_v1:
        why = "over protocol v1, events come without what proves them"
        remedy = f"upgrade {sender} to a release that speaks v2"
    else:
        why = "no leaf was stated, nothing here covers it, or it arrived before the mode was `verify`"
        remedy = (
            f"ask {sender} for a proof: `routerctl prove {as_argument(unproven.event_id, 'ID')} --peer {sender} --group"
            f" {group}`; if there is none, ask the operator of {node} whether the event is true"
        )
    return Check(
        f"{group}/{sender} history",
        CheckStatus.WARN,
        "history-events-unproven",
        f"nothing proves {some} that {sender} brought in the last day, among the newest {MOST_LOOKED:,} records: the"
        f" last one is {unproven.event_id}, which {node} is said to have admitted; {why}",
        f"{remedy}; to list them: routerctl federation event list --group {group} --history unproven --include-expired",
        group=group,
        peer=sender,
    )


def _check_waiting(group: str, waiting: WaitingTree) -> Check:
    """Return why the events of a tree cannot be checked yet, and what helps."""
    node, sender = waiting.node, waiting.sender
    by = "" if sender == node else f", which {sender} brought,"
    reason, remedy = _why_waiting(group, waiting)
    return Check(
        f"{group}/{node} history",
        CheckStatus.WARN,
        "history-check-waiting",
        f"the event {waiting.event_id} of {node}{by} has waited for {format_duration(waiting.age // SECOND * SECOND)}"
        f" for its check, and others may wait behind it: {reason}",
        f"{remedy}; to list what waits: routerctl federation event list --group {group} --history waiting"
        " --include-expired",
        group=group,
        peer=node,
    )


def _why_waiting(group: str, waiting: WaitingTree) -> tuple[str, str]:
    """Return what is missing for the check of an event, and the next step."""
    node, origin, sender = waiting.node, waiting.origin, waiting.sender
    # Checkpoints come from the sender; hashes are requested from it.
    incoming = f"the link from {sender} to this node with `routerctl federation links` at {sender}"
    outgoing = f"the link from this node to {sender} with `routerctl federation links`"
    compare = f"compare the key with what `routerctl log keys` prints at {node}"
    if waiting.refused and waiting.refused != waiting.key and waiting.held <= waiting.leaf:
        known = f"the known one is {waiting.key} ({waiting.source})" if waiting.key else "it is not the known one"
        return (
            f"{node} shows the key {waiting.refused}, which is refused: {known}",
            f"{compare}; {_confirm_key(group, node, waiting.source)}",
        )
    if not waiting.held and waiting.source == KeySource.PINNED:
        return (
            f"no checkpoint of {origin} signed with the pinned key {waiting.key} of {node} has arrived",
            f"{compare}, and pin the right one in spec.history.keys of the EventGroup; if it is that one, see"
            f" {incoming}, and what doctor says there",
        )
    if not waiting.held and sender == node:  # the key of a direct peer is learned from its first checkpoint
        return (
            f"no checkpoint of {origin} has arrived",
            f"see {incoming}, and whether {node} signs its history, with doctor there",
        )
    if not waiting.held:
        return (
            f"no checkpoint of {origin} has arrived, and no key of {node} is pinned",
            f"pin the key that `routerctl log keys` prints at {node} in spec.history.keys of the EventGroup",
        )
    if waiting.held <= waiting.leaf:
        return (
            f"{sender} says that it is leaf {waiting.leaf} of {origin}, and the last checkpoint that has arrived has"
            f" size {waiting.held}",
            f"see whether {node} signs its history, with doctor there, and {incoming}",
        )
    if waiting.tiles <= waiting.leaf:
        return (
            f"{sender} says that it is leaf {waiting.leaf} of {origin}, and this node has hashes up to size"
            f" {waiting.tiles}",
            f"see {outgoing}, and the log of this node",
        )
    return f"hashes of a later tree of {node} are missing", f"see {outgoing}, and the log of this node"


def _check_findings(state: WitnessState) -> Iterator[Check]:
    for one in state.findings:
        yield Check(
            f"{state.group}/{one.node} history",
            CheckStatus.FAIL if one.kind in (FindingKind.FORK, FindingKind.REFUTED) else CheckStatus.WARN,
            _CODES[FindingKind(one.kind)],
            f"finding {one.id}: {one.detail}",
            f"{_next_step(state, one)}; then confirm it: {_RESET.format(node=one.node, group=state.group)}",
            group=state.group,
            peer=one.node,
        )


def _next_step(state: WitnessState, finding: HistoryFinding) -> str:
    if finding.kind == FindingKind.OLDER_COPY and is_of_files(finding.origin):
        return "find out who writes to the lake, and look for the newer files in back-ups of it"
    if finding.kind == FindingKind.OLDER_COPY:
        return (
            "find out why the database is an older copy, or which other node runs with this node's name and"
            " history.key; stop that one, and get the events that the database lacks back from"
            f" {_place_of_lacking(read_holder(finding), state.group)}"
        )
    if finding.kind == FindingKind.ROLLED_BACK:
        return _ask_for_abandoned(state, finding.node)
    if finding.kind == FindingKind.REFUTED:
        return f"ask the operator of {finding.node} where the event comes from, and have the true one sent again"
    if finding.kind == FindingKind.FORK:
        return f"ask the operator of {finding.node} whether two nodes run with its name and history.key"
    return f"ask the operator of {finding.node}"


def _place_of_lacking(holder: str, group: str) -> str:
    """Return where the events are that an older copy of the database lacks, and how to get them."""
    if holder != LAKE:
        return f"the peer: `routerctl verify --peer {holder} --pull --group {group}`"
    return (
        f"each peer: `routerctl verify --peer NODE --pull --group {group}`; of those that no peer has, the lake has"
        " what was shipped: docs/operations/backup.md#events-after-a-restore"
    )


def _ask_for_abandoned(state: WitnessState, node: str) -> str:
    """Return how the operator of a node gets abandoned events back: from a peer of it, which this node need not be."""
    peer, relay = state.node, ""
    if node not in state.peers:
        peer = state.peers[0] if len(state.peers) == 1 else "RELAY"
        relay = f" from the peer that relays them{'' if peer == 'RELAY' else f', as {peer} does,'}"
    return (
        f"ask the operator of {node}, who can get abandoned events back there{relay} with"
        f" `routerctl verify --peer {peer} --pull --group {state.group}`"
    )


def _note_weak(state: WitnessState) -> Iterator[Check]:
    """Yield what weakens the proofs, and is no fault."""
    shared = sorted({key.node for key in state.keys if key.source == KeySource.SHARED})
    if shared:
        yield Check(
            f"{state.group} history keys",
            CheckStatus.PASS,
            "history-keys-shared",
            f"known only from messages that any holder of a shared secret can sign: {', '.join(shared)}; pin them in"
            " spec.history.keys",
            group=state.group,
        )
    peers = {one.peer for one in state.witnesses if one.cosigned_at is not None}
    alone = [node for node in state.held_nodes if not peers - {node}]
    if alone:
        yield Check(
            f"{state.group} split views",
            CheckStatus.PASS,
            "history-split-view",
            f"no third node compares with this one what it holds of {', '.join(alone)}: a node could show each of them"
            " another history",
            group=state.group,
        )
