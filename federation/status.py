"""The question of a member of a group for another member's links, and its answer. Pure.

A node reports its own links in one group, by name, without addresses and errors. It may add the answers that it got
from its peers, with their age, so that a map reaches one hop farther. All times are ages in seconds: the clocks of the
two nodes need not agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from federation.errors import BadAnswer, Malformed
from federation.peers import NODE_NAME
from federation.wire import StatusQuery

STATUS_QUESTION_BYTES: Final = 1024
"""Maximum size of a question in bytes."""
STATUS_ANSWER_BYTES: Final = 32 << 10
"""Maximum size of an answer in bytes; one that would be larger leaves links out."""
MOST_LINKS: Final = 256
"""Maximum number of links of one node in an answer, both directions counted."""
MOST_OTHERS: Final = 64
"""Maximum number of other nodes whose answers are in an answer."""
OLDEST_SECONDS: Final = 120.0
"""The greatest age of an answer that is passed on."""

OUT: Final = "out"
IN: Final = "in"
STATES: Final = ("running", "backing-off", "blocked", "paused", "failed", "unknown")

_Name = Annotated[str, Meta(min_length=1, max_length=253)]
_Count = Annotated[int, Meta(ge=0, le=10**15)]
_Seconds = Annotated[float, Meta(ge=0, le=1e10)]
_Rate = Annotated[float, Meta(ge=0, le=1e12)]


class StatusQuestion(Struct, frozen=True):
    """The body of a question.

    With `hops` 1, the asked node also asks its own peers; its later answers include their reports.
    """

    hops: Annotated[int, Meta(ge=0, le=1)] = 0


class LinkReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """One link of the reporting node: to `peer` (`out`), or from it (`in`), which has neither state nor lag.

    `events_per_second` is the mean of about a minute, None if it is not known; `last_seconds` how long ago the link
    last made progress (`out`), or its last batch arrived (`in`), None if never; `state_seconds` how long the link has
    been in its state (`out`), None if an older program reports.
    """

    peer: _Name
    direction: Literal["out", "in"]
    state: str = ""
    lag_events: _Count = 0
    lag_seconds: _Seconds = 0.0
    events_per_second: _Rate | None = None
    last_seconds: _Seconds | None = None
    state_seconds: _Seconds | None = None


class NodeReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The links of `node`, as the node reported them `age_seconds` ago; `left_out`: how many further links it has."""

    node: _Name
    age_seconds: _Seconds = 0.0
    links: Annotated[tuple[LinkReport, ...], Meta(max_length=2 * MOST_LINKS)] = ()
    left_out: _Count = 0


class StatusAnswer(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The links of `to_node`, the node that answers, as it read them `age_seconds` ago, and the reports of `others`."""

    group: str
    from_node: str = msgspec.field(name="from")
    to_node: str = msgspec.field(name="to")
    age_seconds: _Seconds = 0.0
    links: Annotated[tuple[LinkReport, ...], Meta(max_length=MOST_LINKS)] = ()
    left_out: _Count = 0
    others: Annotated[tuple[NodeReport, ...], Meta(max_length=MOST_OTHERS)] = ()

    @property
    def own(self) -> NodeReport:
        """Return the report of the answering node on itself."""
        return NodeReport(node=self.to_node, age_seconds=self.age_seconds, links=self.links, left_out=self.left_out)


_QUESTION = msgspec.json.Decoder(StatusQuestion)
_ANSWER = msgspec.json.Decoder(StatusAnswer)


def encode_status_question(question: StatusQuestion) -> bytes:
    """Return the body of a question."""
    return msgspec.json.encode(question)


def read_status_question(body: bytes) -> StatusQuestion:
    """Read the body of a verified question; unknown members are ignored. Raises Malformed."""
    try:
        return _QUESTION.decode(body)
    except (ValueError, RecursionError):
        raise Malformed('the question is not {"hops":0} or {"hops":1}') from None


def write_status_answer(query: StatusQuery, own: NodeReport, others: Iterable[NodeReport]) -> bytes:
    """Return the body of an answer of at most `STATUS_ANSWER_BYTES`.

    Links that need attention come first. What does not fit is left out: first the reports of others, each as a whole,
    then links of the node itself, which are counted.
    """
    names = {"group": query.group, "from_node": query.from_node, "to_node": query.to_node}
    links = tuple(sorted(own.links, key=_urgency)[:MOST_LINKS])
    room = STATUS_ANSWER_BYTES - 512 - sum(map(len, names.values()))
    sizes = [len(msgspec.json.encode(link)) + 1 for link in links]
    while links and sum(sizes) > room:
        links, _ = links[:-1], sizes.pop()
    room -= sum(sizes)
    shown, passed = {link.peer for link in links}, list[NodeReport]()
    for other in others:
        if other.node not in shown or other.node == query.from_node:
            continue
        size = len(msgspec.json.encode(other)) + 1
        if size <= room and len(other.links) <= MOST_LINKS and len(passed) < MOST_OTHERS:
            passed.append(other)
            room -= size
    left_out = own.left_out + len(own.links) - len(links)
    return msgspec.json.encode(
        StatusAnswer(**names, age_seconds=own.age_seconds, links=links, left_out=left_out, others=tuple(passed))
    )


def _urgency(link: LinkReport) -> tuple[bool, bool, float, str, str]:
    return link.direction == IN, link.state == "running", -link.lag_seconds, link.peer, link.direction


def read_status_answer(body: bytes, query: StatusQuery) -> StatusAnswer:
    """Read the answer to a question of `query`. Raises BadAnswer.

    A node reports only links of which it is one end, and passes on only reports of its own peers: an answer with
    anything else is refused as a whole.
    """
    if len(body) > STATUS_ANSWER_BYTES:
        raise BadAnswer(f"the answer has more than {STATUS_ANSWER_BYTES} bytes", reason="too_large")
    try:
        answer = _ANSWER.decode(body)
    except (ValueError, RecursionError):
        raise BadAnswer("the answer does not have the form that the question requires", reason="no_reply") from None
    stated = (answer.group, answer.from_node, answer.to_node)
    if stated != (query.group, query.from_node, query.to_node):
        raise BadAnswer("the answer is about another group, or of another node", reason="other_link")
    _require_links(answer.to_node, answer.links)
    peers = {link.peer for link in answer.links}
    named: set[str] = set()
    for other in answer.others:
        if other.node in named or other.node not in peers or other.node in (query.from_node, query.to_node):
            raise BadAnswer("the answer passes on the report of a node that is not its peer", reason="foreign_report")
        if other.age_seconds > OLDEST_SECONDS:
            raise BadAnswer("the answer passes on an old report", reason="old_report")
        named.add(other.node)
        _require_links(other.node, other.links)
    return answer


def _require_links(node: str, links: Sequence[LinkReport]) -> None:
    """Raise BadAnswer unless these are links of `node`, each once, with valid names and known states."""
    if len(links) > MOST_LINKS:
        raise BadAnswer(f"the answer has more than {MOST_LINKS} links of a node", reason="too_large")
    if not NODE_NAME.fullmatch(node):
        raise BadAnswer("the answer names a node in a way that is not valid", reason="invalid_name")
    known: set[tuple[str, str]] = set()
    for link in links:
        if not NODE_NAME.fullmatch(link.peer):
            raise BadAnswer("the answer names a node in a way that is not valid", reason="invalid_name")
        if link.state not in (STATES if link.direction == OUT else ("",)):
            raise BadAnswer("the answer has a state that is not known", reason="unknown_state")
        if link.peer == node or (link.peer, link.direction) in known:
            raise BadAnswer("the answer has a link twice, or one of a node to itself", reason="repeated_link")
        known.add((link.peer, link.direction))
