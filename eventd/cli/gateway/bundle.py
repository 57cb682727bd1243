"""Reads a support bundle as if it were the node: operations return the answers that were recorded in the bundle."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from eventd.errors import Invalid, NotFound, Unavailable

ANSWERS: Final = "answers/"
MANIFEST: Final = "manifest.json"
MOST_BYTES: Final = 256 << 20
"""Maximum size of a bundle's answers, unpacked: one that was made by `support-bundle` has far less."""
_MAKE: Final = "make one with routerctl support-bundle"
RATES: Final = "rates.show"
_SERIES: Final = ("kind", "group", "link", "callback", "topic")
"""Parameters that select series of rates; each is a member of a series, and a link is selected by its node."""
_PLAIN: Final = frozenset({"limit", "after", "newest"})
"""Parameters that select a part of a list. They are ignored, because a bundle has the whole list."""


class BundleGateway:
    """Answers operations from a support bundle.

    Raises `Unavailable` for an operation that the bundle does not contain.
    """

    needs_loop = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers, self._manifest = _read(path)

    async def call(self, operation: str, /, **params: Any) -> Any:
        recorded = self._answers.get(operation)
        if operation == "resources.get":
            return self._resource(_significant(params))
        if recorded is None:
            raise Unavailable(f"{self._path} has no answer to {operation}", hint="see manifest.json in it")
        asked = _significant(params)
        if operation.startswith("resources.") and "kind" in asked:
            from eventd.resources.kinds.registry import find_kind

            asked["kind"] = find_kind(str(asked["kind"])).name
        for one in recorded:
            if _significant(one["params"]) == asked or operation == RATES:
                if "error" in one:
                    raise Unavailable(f"{operation} was not recorded: {one['error']}")
                answer = one["answer"]
                return _last_page(_chosen_rates(answer, asked) if operation == RATES else answer)
        if operation == "resources.list":
            return {"resources": self._resources(str(asked.get("kind", "")), str(asked.get("selector", "")))}
        known = sorted(_shown(_significant(one["params"])) for one in recorded)[:5]
        raise NotFound(
            f"{self._path} has no answer to {operation} for {_shown(asked)}",
            hint=f"it has those for {'; '.join(known)}",
        )

    def _resources(self, kind: str, selector: str) -> list[dict[str, Any]]:
        from eventd.resources.label_selector import LabelSelector

        labels = LabelSelector(selector)
        recorded = self._answers.get("resources.list", [{}])[0]
        rows: list[dict[str, Any]] = recorded.get("answer", {}).get("resources", [])
        chosen = [row for row in rows if row["kind"] == (kind or row["kind"])]
        return [row for row in chosen if labels.matches(row["metadata"].get("labels", {}))]

    def _resource(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        from eventd.resources.kinds.registry import find_kind

        for row in self._resources(find_kind(str(asked["kind"])).name, ""):
            if row["metadata"]["name"] == asked["name"]:
                return row
        raise NotFound(f"{asked['kind']}/{asked['name']} does not exist in {self._path}")

    def serving(self) -> str:
        """Return the process of the node whose state the bundle contains; empty if no node ran."""
        return str(self._manifest.get("serving", ""))

    async def close(self) -> None:
        """There is nothing to close."""


def _significant(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that identify an answer: those that are set and do not only select a part of a list."""
    given = {name: value for name, value in params.items() if value not in ("", None, [], (), False)}
    return {name: value for name, value in given.items() if name not in _PLAIN}


def _shown(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items()) or "no parameters"


def _last_page(answer: Any) -> Any:
    """Return an answer without a token for the next page: a bundle has no more pages, and would give this one again."""
    return {**answer, "next": None} if isinstance(answer, dict) and answer.get("next") else answer


def _chosen_rates(answer: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded rates of the series that are asked for, of the last seconds that are asked for."""
    wanted = {"node" if name == "link" else name: asked[name] for name in _SERIES if name in asked}
    points = int(asked.get("seconds", 0)) // int(answer["intervalSeconds"])
    chosen = [
        {name: value[-points:] if isinstance(value, list) else value for name, value in series.items()}
        for series in answer["series"]
        if all(series.get(name) == value for name, value in wanted.items())
    ]
    return {**answer, "series": chosen}


def _read(path: Path) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """Return the recorded answers by operation, and the manifest. Raises `Invalid`."""
    answers: dict[str, list[dict[str, Any]]] = {}
    manifest: dict[str, Any] = {}
    left = MOST_BYTES
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                if not member.isfile() or not (name.startswith(ANSWERS) or name == MANIFEST):
                    continue
                left -= member.size
                file = archive.extractfile(member)
                if left < 0 or file is None:
                    raise Invalid(f"{path} is larger than a support bundle", hint=f"at most {MOST_BYTES >> 20} MiB")
                content = json.loads(file.read(member.size))
                if name == MANIFEST:
                    manifest = content
                else:
                    answers[name.removeprefix(ANSWERS).removesuffix(".json")] = content
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror or error}", hint="write the path of a bundle") from None
    except (tarfile.TarError, EOFError, ValueError, RecursionError) as error:
        raise Invalid(f"{path} is not a support bundle: {error}", hint=_MAKE) from None
    if not manifest or not _is_sound(answers):
        raise Invalid(f"{path} is not a support bundle", hint=_MAKE)
    return answers, manifest


def _is_sound(answers: Mapping[str, Any]) -> bool:
    return all(
        isinstance(recorded, list)
        and all(isinstance(one, dict) and isinstance(one.get("params"), dict) for one in recorded)
        and all("answer" in one or "error" in one for one in recorded)
        for recorded in answers.values()
    )
