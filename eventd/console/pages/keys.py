"""Keys: the API keys of the database; one is shown once, on the page that answers its creation."""

from __future__ import annotations

from typing import Any, Final

from eventd.api.keys.roles import ROLES
from eventd.console.pages.actions import FormField, PageAction, Question
from eventd.console.pages.visit import MOST_ROWS, ShownPage, Visit
from eventd.console.rendering.formats import duration, parse
from eventd.errors import Invalid, NotFound

_ONLY_WRITE: Final = "write"
_ACCESS: Final[dict[str, list[str]]] = {
    **{role.name: sorted(role.scopes) for role in ROLES},
    _ONLY_WRITE: ["write"],
}
"""The choices of the form, with the scopes of each."""
_SUMMARIES: Final = "\n".join(
    [*(f"{role.name}: {role.summary}" for role in ROLES), f"{_ONLY_WRITE}: Emits and writes, and sees nothing."]
)
_ADMIN: Final = "admin"
_FIRST: Final = (
    "It is the first key of this node. From then on, requests without a key are refused: those of this console, of"
    " routerctl over the network, and of programs that emit and write. Keep the key, and sign in with it."
)
_LOCKS_OUT: Final = (
    "Nothing was created: the first key must be able to make other keys, or you are locked out with it.\n"
    "Let it be admin, and leave the names that it is limited to empty; then create the others."
)
_KEEP: Final = "keep it in the list"
_FORGET: Final = "remove it from the list"


async def show_keys(visit: Visit) -> ShownPage:
    """Show the keys of the database by name, or those with `q` of the query in their names and in its `state`."""
    found = await visit.view.call("keys.list")
    known = found["keys"]
    state, text = visit.asked("state"), visit.asked("q").casefold()
    shown = [one for one in known if state in ("", one["state"]) and text in one["name"].casefold()]
    after = visit.asked("after")
    rest = [one for one in shown if one["name"] > after]
    page = rest[: visit.limit]
    data = {
        "keys": page,
        "count": len(shown),
        "all": len(known),
        "required": found.get("required", True),  # an older node does not say
        "states": ("active", "expired", "revoked"),
        "revokers": await _revokers(visit, {one["name"]: one["revokedAt"] for one in page if one["revokedAt"]}),
        "roles": ROLES,
        "known_since": _known_for(visit, found.get("usesKnownSince")),
        "unused": [one["name"] for one in page if _is_unused(one, found.get("usesKnownSince"))],
        "next": page[-1]["name"] if len(rest) > len(page) else "",
    }
    return ShownPage("Keys", "keys.html", data, live=not after)


def _is_unused(key: dict[str, Any], since: str | None) -> bool:
    """Return whether a key was never used: it has no use, and uses are known for as long as it exists."""
    return not key["lastUsedAt"] and since is not None and parse(key["createdAt"]) >= parse(since)


def _known_for(visit: Visit, since: str | None) -> str:
    """Return for how long uses of keys are known, in words; empty if they are not."""
    return duration(max(0.0, (visit.style.now - parse(since)).total_seconds())) if since else ""


async def _revokers(visit: Visit, revoked: dict[str, str]) -> dict[str, str]:
    """Return the callers that revoked these keys, found by the times of revocation, as far as the record of actions
    shows them."""
    if not revoked or not visit.view.may("actions.list"):
        return {}
    found = await visit.view.call("actions.list", operation="keys.revoke", result="ok", limit=MOST_ROWS)
    revokers: dict[str, str] = {}
    for one in found["actions"]:  # the newest first: a removed key of the same name may have been revoked before
        name = one["object"].removeprefix("key ")
        if name in revoked and name not in revokers and parse(one["at"]) <= parse(revoked[name]):
            revokers[name] = one["who"]
    return revokers


async def ask_create(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask for the name and the limits of a new key."""
    fields = (
        FormField("name", "Name", "Such as the program that uses it. Names are unique.", required=True),
        FormField("access", "May", _SUMMARIES, choices=tuple(_ACCESS)),
        FormField("prefixes", "Only names that begin with", "Of groups, topics and routers, with blanks between."),
        FormField("expires", "Expires", "A time, or a duration from now such as 720h; empty: never."),
    )
    lines = ("The next page shows the key, once: the node does not store it, and cannot show it again.",)
    if (await visit.view.call("keys.list")).get("required", True):  # an older node does not say
        return Question("Create a key?", lines, fields=fields)
    params.setdefault("access", _ADMIN)
    locks_out = params["access"] != _ADMIN or "prefixes" in params
    problem = _LOCKS_OUT if locks_out else ""
    return Question("Create the first key?", (_FIRST, *lines), fields=fields, ready=not locks_out, problem=problem)


def _created(form: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of `keys.create` from the fields of the form."""
    access = form.get("access", "")
    if access not in _ACCESS:
        raise Invalid("choose what the key may do")
    params = {"name": form.get("name", ""), "scopes": _ACCESS[access]}
    if prefixes := str(form.get("prefixes", "")).split():
        params["prefixes"] = prefixes
    if "expires" in form:
        params["expires"] = form["expires"]
    return params


def show_created(visit: Visit, answer: dict[str, Any]) -> ShownPage:
    """Show a key that was created."""
    return ShownPage(f"Key {answer['name']}", "key_created.html", {"one": answer}, live=False)


async def ask_revoke(visit: Visit, params: dict[str, Any]) -> Question:
    """Ask before a key is revoked, or removed from the list. Raises NotFound."""
    name = params.get("name", "")
    known = (await visit.view.call("keys.list"))["keys"]
    one = next((one for one in known if one["name"] == name), None)
    if one is None:
        raise NotFound(f"there is no key {name[:80]!r}", hint="the page Keys shows all of them")
    lines = ["Requests with it are refused at once; its streams and its sessions of the console end."]
    if one["state"] != "active":
        lines = [f"It is {one['state']} already: no request with it is accepted."]
    elif visit.visitor == f"key {name}":
        lines.append("You are signed in with this key: you are signed out with it.")
    lines.append("A key that is removed from the list frees its name for another key.")
    if one["state"] == "revoked":
        params["then"] = _FORGET
        return Question(f"Remove the key {name} from the list?", tuple(lines), button="Remove", danger=True)
    field = FormField("then", "Then", choices=(_KEEP, _FORGET))
    return Question(f"Revoke the key {name}?", tuple(lines), fields=(field,))


def _revoked(form: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of `keys.revoke` from the fields of the form."""
    return {"name": form.get("name", ""), "forget": form.get("then") == _FORGET}


ACTIONS: Final = {
    "keys.create": PageAction("Create the key", "The key is created.", ask_create, prepare=_created, show=show_created),
    "keys.revoke": PageAction("Revoke", "The key is revoked.", ask_revoke, danger=True, prepare=_revoked, bound="then"),
}
