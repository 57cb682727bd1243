"""The links that need attention now, by their present states, combined with doctor's findings, which may be older."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from eventd.console.drawing.map_links import SILENT
from eventd.console.pages.visit import Visit

_CALM: Final = ("running", "new")
_HELD: Final = ("blocked", "failed", "backing-off")
_STATE_OF: Final = {
    "link-blocked": "blocked",
    "link-failed": "failed",
    "link-down": "backing-off",
    "link-paused": "paused",
}
"""The state of the link that a check of doctor reports, by its code."""
_CONSEQUENCES: Final = frozenset({"pending-deliveries", "waiting-lag"})
"""The codes of checks that report what waits for a link: a link that does not run is the cause, and has the figures."""
_PAST: Final = "nothing to do: "
"""How the remedy of `delivery-lag` begins if deliveries are in time again: then it needs no attention."""
_ONLY_HELD: Final = "fix the link "
"""How the remedy of `failed-deliveries` begins if there are no dead letters: the link holds all these events back."""


class LinkProblems(NamedTuple):
    """The links that do not run, by group and peer, and the groups whose links are known as they are now."""

    links: Mapping[tuple[str, str], Mapping[str, Any]]
    known: frozenset[str]


async def read_link_problems(visit: Visit, groups: Sequence[Mapping[str, Any]]) -> LinkProblems:
    """Return the links that do not run.

    `groups.status` shows which groups have such links; only these groups are asked for their links.
    """
    visible = [group for group in groups if visit.view.may("links.status", group["group"])]
    troubled = [group["group"] for group in visible if any(state not in _CALM for state in group["links"])]
    found, late = await visit.ask_groups("links.status", troubled)
    links = [link for links in found for link in links["outbound"] if link["state"] not in _CALM]
    known = frozenset(group["group"] for group in visible).difference(late)
    return LinkProblems({(link["group"], link["peer"]): link for link in links}, known)


def join_problems(now: LinkProblems, checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the problems of links in their present state, then the other checks of doctor, without checks about a
    former state of a link.

    A link that does not run is one problem, with its present figures: checks of doctor about its state, or about what
    waits for it, add their remedy and how bad it is.
    """
    kept, found = [], {name: _problem(link) for name, link in sorted(now.links.items())}
    for check in checks:
        if _is_past(check):
            continue
        code, link = check.get("code", ""), (check.get("group", ""), check.get("peer", ""))
        state = _STATE_OF.get(code)
        if state is not None and link[0] in now.known:
            if link in found and now.links[link]["state"] == state:  # or doctor found it in a state that it has left
                found[link] |= {"remedy": check.get("remedy") or found[link]["remedy"]}
                _worsen(found[link], check)
        elif link in found and _is_consequence(check):
            _worsen(found[link], check)
        else:
            kept.append(dict(check))
    return [*found.values(), *join_subscriptions(kept)]


def _is_past(check: Mapping[str, Any]) -> bool:
    return check.get("code") == "delivery-lag" and str(check.get("remedy", "")).startswith(_PAST)


def _is_consequence(check: Mapping[str, Any]) -> bool:
    """Return whether a check reports only what waits for its link, if that does not run."""
    code, remedy = check.get("code"), str(check.get("remedy", ""))
    return code in _CONSEQUENCES or (code == "failed-deliveries" and remedy.startswith(_ONLY_HELD))


def join_subscriptions(checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return checks in which a subscription that does not run is one problem: the figures of its runs are a part of
    its detail."""
    held = {_subscription_of(check): dict(check) for check in checks if check.get("code") == "subscription-held"}
    joined = list[dict[str, Any]]()
    for check in checks:
        cause = held.get(_subscription_of(check))
        if check.get("code") == "subscription-held" and cause is not None:
            joined.append(cause)
        elif check.get("code") == "subscription-runs" and cause is not None:
            cause["detail"] = "; ".join(filter(None, (cause.get("detail"), check.get("detail"))))
            _worsen(cause, check)
        else:
            joined.append(dict(check))
    return joined


def _subscription_of(check: Mapping[str, Any]) -> tuple[object, object]:
    return check.get("group"), check.get("resource")


def without_links(checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the checks that are not about links that do not run, or about what waits for them."""
    links = {(check.get("group"), check.get("peer")) for check in checks if check.get("code") in _STATE_OF}
    others = [
        check
        for check in checks
        if check.get("code") not in _STATE_OF
        and not _is_past(check)
        and not (_is_consequence(check) and (check.get("group"), check.get("peer")) in links)
    ]
    return join_subscriptions(others)


def rank_problem(problem: Mapping[str, Any]) -> int:
    """Return how soon a problem is listed, the smaller the rank, the sooner: peers that get nothing now come first.

    What failed once can wait; what waits for a peer grows.
    """
    link = problem.get("link")
    if problem.get("is_away") or (link and link["state"] in _HELD):
        return 0
    return 1 if problem["status"] == "fail" else 2


def _worsen(problem: dict[str, Any], check: Mapping[str, Any]) -> None:
    if check["status"] == "fail":
        problem["status"] = "fail"


def _problem(link: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"{link['group']}/{link['peer']} link",
        "status": "fail" if link["state"] in ("blocked", "failed") else "warn",
        "group": link["group"],
        "peer": link["peer"],
        "remedy": link.get("remedy", ""),  # older nodes do not report it
        "link": link,
    }


def list_findings(shown: Mapping[str, Any] | None, known: Set[tuple[str, str]] = frozenset()) -> list[dict[str, Any]]:
    """Return as problems the contradictions between the two ends of links of a map, and the peers that do not answer.

    Each names the link of this node, if it is about one. `known`: links of which another problem tells, by group and
    peer: a link that has nothing to send does not notice that its peer is gone.
    """
    if shown is None:
        return []
    own, group = shown["node"], shown["group"]
    gone = [
        {
            "name": f"{group}/{node['node']}",
            "status": "warn",
            "detail": "does not answer this node, which asks it for its links",
            "is_away": True,
            "group": group,
            "peer": node["node"],
        }
        for node in shown["nodes"]
        if node["answer"] in SILENT and (group, node["node"]) not in known
    ]
    return gone + [
        {
            "name": f"{group}: link from {link['from']} to {link['to']}",
            "status": "warn",
            "detail": "; ".join(link["findings"]),
            "remedy": _remedy_for(group, link),
            "group": group,
            "peer": link["to"] if link["from"] == own else link["from"] if link["to"] == own else "",
        }
        for link in shown["links"]
        if link["findings"]
    ]


def _remedy_for(group: str, link: Mapping[str, Any]) -> str:
    """Return what to do about a link whose ends disagree."""
    source, target = link["from"], link["to"]
    if link["sender"] is None:
        return (
            f"if {source} should send to {target}, apply an EventPeer for {target} at {source}; if not, delete that for"
            f" {source} at {target}, and if events still arrive, find out which node sends them"
        )
    return f"at {source}, compare what {target} has: routerctl verify --group {group} --peer {target}"
