"""The pages of all nodes together: their states with one map, and one event on its way through all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from eventd.console.drawing.map_links import STATES, reporting_nodes, silent_nodes, table_rows
from eventd.console.drawing.map_picture import draw_map
from eventd.console.many.answers import check_description, check_found, check_letters
from eventd.console.many.disagreements import Disagreements, count_odd
from eventd.console.many.event_courses import note_arrivals
from eventd.console.many.joined_map import join_maps
from eventd.console.many.remote_node import SILENCE_SECONDS, NodeSummary, RemoteNode, ask_all
from eventd.console.many.silent_node import groups_of, list_reports
from eventd.console.pages.table import PageRoute
from eventd.console.pages.visit import ShownPage, Visit
from eventd.console.rendering.urls import Urls
from eventd.console.view.node_view import NodeView
from eventd.errors import EventdError, Forbidden, NotFound, Unauthorized
from eventd.runtime.supervisor import SpawnTask
from eventd.text.plural import counted

PATIENCE_SECONDS: Final = 0.4
"""Seconds for which the page of all nodes waits for answers; of nodes that have not answered, it shows what is
known."""
_MOST_MAPS: Final = 3
"""Maximum number of groups whose maps are asked for, for the page of a node that does not answer."""
_MOST_GROUPS: Final = 20
"""Maximum number of groups in the row of a node."""
_MOST_CHOICES: Final = 200
"""Maximum number of groups offered in the choice of a map; a URL, and the links in a node's row, lead to the map of
any group."""
_MOST_ROWS: Final = 100
"""Maximum number of links, and of nodes, in the tables below a map."""

NO_FINDINGS: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType({})
_NO_ANSWER: Final = f"it has not answered within {SILENCE_SECONDS:.0f} s"


class AllNodesView:
    """The view for the pages of all nodes. It offers no operation, because these pages ask each node themselves."""

    name = "all nodes"

    def may(self, operation: str, group: str = "") -> bool:
        return not operation

    def sees(self, name: str) -> bool:
        return True

    def may_ask(self, method: str, *path: str) -> bool:
        return False

    async def ask(
        self, method: str, *path: str, body: Any = None, model: Any = Any, once: str = "", **query: Any
    ) -> Any:
        raise _of_no_node()

    async def call(self, operation: str, /, **params: Any) -> Any:
        raise _of_no_node()

    async def act(self, operation: str, key: str, /, **params: Any) -> Any:
        raise _of_no_node()

    async def find_answer(self, operation: str, key: str, /, **params: Any) -> Any:
        raise _of_no_node()

    async def find_asked(self, once: str, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        raise _of_no_node()


class AllNodes:
    """The nodes, and the pages of all of them. `urls`: of the site of each node, by its name."""

    def __init__(self, nodes: list[RemoteNode], urls: Mapping[str, Urls], spawn: SpawnTask) -> None:
        self._nodes = nodes
        self._urls = urls
        self._spawn = spawn
        self._disagreements = Disagreements()

    def pages(self) -> tuple[PageRoute, ...]:
        """Return the routes of these pages, which a visitor may open without permissions at a node."""
        return (
            PageRoute("/", self.show_nodes, "", "nodes", "Nodes", "o"),
            PageRoute("/nodes/{name}", self.show_node, "", "nodes"),
            PageRoute("/events", self.show_event, "", "events", "Find an event", "e"),
            PageRoute("/dead-letters", self.show_letters, "", "dead-letters", "Dead letters", "x"),
        )

    async def show_nodes(self, visit: Visit) -> ShownPage:
        """Show each node with its groups, and the map of one group from all sides."""
        group = visit.asked("group") or next((node.options.group for node in self._nodes if node.options.group), "")
        group = group or next((name for node in self._nodes for name in _groups_of(node)), "")
        await self._refresh(group)
        groups = sorted({name for node in self._nodes for name in _groups_of(node)})
        group = group if group in groups or visit.asked("group") else (groups[0] if groups else "")
        drawn = self._map(group)
        odd = {**self._disagreements.count(self._nodes), group: drawn["odd"]}
        rows = [self._row(node, odd) for node in self._nodes]  # in an order that no state changes
        data = {"nodes": rows, "groups": groups[:_MOST_CHOICES], "group": group, "states": STATES, **drawn}
        return ShownPage("Nodes", "nodes.html", data)

    async def _refresh(self, group: str) -> None:
        """Ask all nodes, and wait for their answers, but not for those that are slow or silent."""
        asked = [task for node in self._nodes if (task := node.refresh(group)) is not None]
        if asked:
            await asyncio.wait(asked, timeout=PATIENCE_SECONDS)

    def _row(self, node: RemoteNode, odd: Mapping[str, Mapping[str, int]] = NO_FINDINGS) -> dict[str, Any]:
        """Return the row of a node. `odd`: by group, how many links of each node have ends that disagree."""
        summary, options = node.summary or NodeSummary(0.0), node.options
        links: dict[str, int] = {}
        for each in summary.groups:
            for state, count in each["links"].items():
                links[state] = links.get(state, 0) + count
        links = {state: links[state] for state in sorted(links, key=lambda state: (state == "running", state))}
        return {
            "name": node.name,
            "url": self._known(node.name) if node.problem else self._urls[node.name].to(),
            "colour": options.colour,
            "protected": options.protected,
            "address": options.address,
            "state": _state_of(node),
            "problem": node.problem or node.refusal,
            "silent_for": node.silent_seconds(),
            "asked": node.summary is not None or bool(node.problem or node.refusal),
            "age": node.age() if node.problem or node.refusal else None,
            "groups": summary.groups[:_MOST_GROUPS],
            "more": len(summary.groups) - _MOST_GROUPS,
            "events": None if node.summary is None else sum(each["events"] for each in summary.groups),
            "links": links,
            "attention": self._attention(node, odd),
            "examined": node.findings is not None and node.maps is not None,
            "unread": 0 if node.maps is None else len(summary.groups) - len(node.maps),
        }

    def _attention(self, node: RemoteNode, odd: Mapping[str, Mapping[str, int]]) -> list[dict[str, str]] | None:
        """Return what needs attention at a node besides the states of its links; None if that is not known."""
        if node.summary is None or node.problem or node.refusal:
            return None
        urls = self._urls[node.name]
        items = [
            {"words": item.words, "url": urls.to(*item.path, **item.query)}
            for item in [*node.attention, *(node.findings or ())]
        ]
        for group, shown in sorted({**(node.maps or {}), **node.summary.maps}.items()):
            if number := odd.get(group, {}).get(str(shown["node"]), 0):
                words = f"{counted(number, 'link')} of {group} whose ends disagree"
                items.append({"words": words, "url": f"{Urls().to(group=group)}#map-links"})
        return items

    @staticmethod
    def _known(name: str) -> str:
        """Return the URL of the page for a node that does not answer, which shows its last known state."""
        return Urls().to("nodes", name)

    async def show_node(self, visit: Visit) -> ShownPage:
        """Show what is known of a node without asking it: its last answer, and what the others report. Raises NotFound.

        It is where a node leads that does not answer.
        """
        name = visit.names["name"]
        node = next((node for node in self._nodes if node.name == name), None)
        if node is None:
            raise NotFound(f"there is no context {name[:80]!r}", hint="the page Nodes shows all")
        others = [each for each in self._nodes if each is not node]
        groups = groups_of(node, others)
        for group in list(groups)[:_MOST_MAPS] or [""]:
            await self._refresh(group)
        groups = groups_of(node, others)
        maps = {other.name: other.summary.maps for other in others if other.summary and not other.problem}
        reports = []
        for group, own in groups.items():
            told = {context: known[group] for context, known in maps.items() if group in known}
            reports += [
                one | {"url": self._urls[one["context"]].to("links", group, own)}
                for one in list_reports(group, own, told)
            ]
        row = self._row(node) | {"answered": node.age(), "pages": self._urls[name].to()}
        waiting = sum(one["sender"]["lagEvents"] for one in reports if one["sender"])
        data = {"node": row, "groups": list(groups)[:_MOST_GROUPS], "reports": reports[:_MOST_ROWS], "waiting": waiting}
        return ShownPage(name, "silent_node.html", data)

    def _map(self, group: str) -> dict[str, Any]:
        known = {node.name: node.summary.maps.get(group) for node in self._nodes if node.summary is not None}
        silent = {node.name: node.silent_seconds() or 0.0 for node in self._nodes if node.problem}
        refused = {node.name for node in self._nodes if node.refusal}  # what it said before may have changed
        told = [shown for name, shown in known.items() if shown is not None and name not in silent.keys() | refused]
        since = {str(shown["node"]): silent[name] for name, shown in known.items() if shown and name in silent}
        if not told:
            return {"map": None, "picture": None, "hidden": 0, "all": 0, "claims": {}, "odd": {}}
        joined = join_maps(group, told, since)
        claims = self._find_claims(known)
        at = {str(shown["node"]): self._urls[name] for name, shown in known.items() if shown is not None}
        at = {name: urls for name, urls in at.items() if name not in claims}  # it may be any of them
        gone = {str(shown["node"]): self._known(name) for name, shown in known.items() if shown and name in silent}
        at = {name: urls for name, urls in at.items() if name not in gone}
        for node in joined["nodes"]:
            node["console"] = gone.get(node["node"]) or (at[node["node"]].to() if node["node"] in at else "")
        links = table_rows(joined["links"][:_MOST_ROWS], silent_nodes(joined), reporting_nodes(joined))
        rows = {"nodes": joined["nodes"][:_MOST_ROWS], "links": links}
        return {
            "map": joined | rows | {"sites": at, "gone": gone},
            "picture": draw_map(joined),
            "hidden": joined["leftOut"] + len(joined["links"]) - len(rows["links"]),
            "all": len(joined["nodes"]),
            "claims": claims,
            "odd": count_odd(joined["links"]),
        }

    def _find_claims(self, known: Mapping[str, Mapping[str, Any] | None]) -> dict[str, list[str]]:
        """Return the node names that several addresses claim, each with the contexts of these addresses."""
        found: dict[str, dict[str, str]] = {}
        for node in self._nodes:
            if (shown := known.get(node.name)) is not None:
                found.setdefault(str(shown["node"]), {})[node.options.address] = node.name
        return {
            name: [f"{context} ({address})" for address, context in contexts.items()]
            for name, contexts in found.items()
            if len(contexts) > 1
        }

    async def show_event(self, visit: Visit) -> ShownPage:
        """Show one event at each node that has it: the nodes it came through, its deliveries, and its runs."""
        name = visit.asked("id")
        if not name:
            return ShownPage("Find an event", "found.html", {"name": "", "rows": []}, live=False)

        async def ask(node: RemoteNode) -> list[dict[str, Any]]:
            await node.learn()
            view = node.view("")
            found = check_found(await view.call("events.find", id=name))[:_MOST_GROUPS]
            return [
                {**(await describe(view, one["group"]) if one["stored"] else {})}
                | {"group": one["group"], "stored": one["stored"]}
                for one in found
            ]

        async def describe(view: NodeView, group: str) -> Mapping[str, Any]:
            return check_description(await view.call("events.describe", group=group, id=name))

        answers = await ask_all(self._nodes, ask, self._spawn, SILENCE_SECONDS)
        rows = [self._found(node, answers.get(node.name), name) for node in self._nodes]
        note_arrivals(rows)
        rows.sort(key=lambda row: (not row["courses"], bool(row["problem"])))
        return ShownPage(f"Event {name}", "found.html", {"name": name, "rows": rows})

    async def show_letters(self, visit: Visit) -> ShownPage:
        """Show how many dead letters each reason has at each node, the most first."""

        async def ask(node: RemoteNode) -> list[Mapping[str, Any]]:
            await node.learn()
            return check_letters(await node.view("").call("dead_letters.all", limit=1))

        answers = await ask_all(self._nodes, ask, self._spawn, SILENCE_SECONDS)
        rows, problems = [], []
        for node in self._nodes:
            answer, urls = answers.get(node.name), self._urls[node.name]
            if isinstance(answer, list):
                names = ("kind", "owner", "group", "reason")
                rows += [
                    {**one} | {"node": self._entry(node), "url": urls.to("dead-letters", **{n: one[n] for n in names})}
                    for one in answer
                ]
            else:
                problems.append(self._entry(node) | {"problem": str(answer) if answer else _NO_ANSWER})
        rows.sort(key=lambda row: (-row["count"], row["node"]["name"], row["kind"], row["owner"], row["reason"]))
        data = {"rows": rows[:_MOST_ROWS], "more": len(rows) - _MOST_ROWS, "problems": problems}
        return ShownPage("Dead letters", "letters_of_all.html", data)

    def _entry(self, node: RemoteNode) -> dict[str, Any]:
        """Return the name and colour of a node, and the URL of its pages, for a page."""
        urls = self._urls[node.name]
        return {"name": node.name, "url": urls.to(), "colour": node.options.colour, "protected": False}

    def _found(self, node: RemoteNode, answer: Any, name: str) -> dict[str, Any]:
        problem, courses = "", []
        if answer is None:
            problem = _NO_ANSWER
        elif isinstance(answer, NotFound) and answer.code != "no_such_route":
            pass
        elif isinstance(answer, EventdError):
            problem = str(answer)
        else:
            at = self._urls[node.name]
            courses = [{**one, "url": at.to("events", one["group"], name), "at": at} for one in answer]
        state = _state_of(node) if node.problem else "silent" if answer is None else _word_of(answer)
        return self._entry(node) | {"problem": problem, "state": state, "courses": courses}


def _state_of(node: RemoteNode) -> str:
    """Return why a node cannot be read, in one word; empty if it can."""
    if node.problem:
        return "unusable" if node.options.problem else "silent"
    return "" if not node.refusal else "refused" if node.is_refused else "unreadable"


def _word_of(answer: Any) -> str:
    return "refused" if isinstance(answer, Unauthorized | Forbidden) else "unreadable"


def _of_no_node() -> NotFound:
    return NotFound("this page is of all nodes", hint="choose a node")


def _groups_of(node: RemoteNode) -> list[str]:
    return [] if node.summary is None else [str(group["group"]) for group in node.summary.groups]
