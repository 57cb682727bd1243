"""Policies: the keys that a verifier knows, and which witnesses must have cosigned a checkpoint. C2SP tlog-policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from federation.errors import MalformedHistory
from federation.history.forms import quote, read_number
from federation.history.notes import LOG_KEY, WITNESS_KEY, NoteKey, read_vkey

MAX_POLICY: Final = 1 << 20
"""Maximum number of characters of a policy."""
NO_QUORUM: Final = "none"
_MOST_MEMBERS: Final = 1_000
_URL: Final = 1
"""How many words may follow the required ones of `log` and `witness`: an address, which is ignored."""


class WitnessGroup(NamedTuple):
    """A group of a policy, which holds if at least `least` of its members do: witnesses and other groups."""

    least: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class Policy:
    """The keys of trees and of witnesses that a verifier knows, and the name of what must hold, `quorum`."""

    logs: tuple[NoteKey, ...] = ()
    witnesses: Mapping[str, NoteKey] = field(default_factory=dict)
    groups: Mapping[str, WitnessGroup] = field(default_factory=dict)
    quorum: str = NO_QUORUM

    def holds(self, cosigned: Iterable[NoteKey]) -> bool:
        """Return whether cosignatures of these witnesses fulfil the quorum. A key counts once under several names."""
        public = {key.public for key in cosigned}
        held = {name: key.public in public for name, key in self.witnesses.items()}
        for name, group in self.groups.items():  # the members of a group stand above it
            held[name] = sum(held[member] for member in group.members) >= group.least
        return self.quorum == NO_QUORUM or held[self.quorum]


class _PolicyReader:
    """Reads the lines of one policy."""

    def __init__(self) -> None:
        self.logs: list[NoteKey] = []
        self.witnesses: dict[str, NoteKey] = {}
        self.groups: dict[str, WitnessGroup] = {}
        self.quorum: str | None = None

    def take(self, kind: str, words: list[str]) -> bool:
        """Add what a line states. Returns False if it is not in one of the forms of a policy."""
        match kind, words:
            case "log", [key, *rest] if len(rest) <= _URL:
                self.logs.append(read_vkey(key, LOG_KEY))
            case "witness", [name, key, *rest] if len(rest) <= _URL and self._is_free(name):
                self.witnesses[name] = read_vkey(key, WITNESS_KEY)
                if any(other.public == self.witnesses[name].public for other in [*self.witnesses.values()][:-1]):
                    raise MalformedHistory(f"the witness {quote(name)} has the key of another one", reason="policy")
            case "group", [name, least, *members] if self._is_free(name) and self._are_members(members):
                number = {"any": "1", "all": str(len(members))}.get(least, least)
                count = read_number(number, f"the number of the group {quote(name)}", len(members))
                self.groups[name] = WitnessGroup(count, tuple(members))
                return count > 0
            case "quorum", [name] if self.quorum is None and (name == NO_QUORUM or not self._is_free(name)):
                self.quorum = name
            case _:
                return False
        return True

    def _is_free(self, name: str) -> bool:
        return name != NO_QUORUM and name not in self.witnesses and name not in self.groups

    def _are_members(self, names: list[str]) -> bool:
        known = all(name in self.witnesses or name in self.groups for name in names)
        return known and 0 < len(names) <= _MOST_MEMBERS and len(dict.fromkeys(names)) == len(names)


def read_policy(text: str) -> Policy:
    """Return the policy with this text. Raises MalformedHistory, which names the line."""
    if len(text) > MAX_POLICY:
        raise MalformedHistory(f"a policy has at most {MAX_POLICY} characters", reason="policy")
    reader = _PolicyReader()
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if not reader.take(words[0], words[1:]):
            raise MalformedHistory(
                f"line {number} of the policy is {quote(line)}: it must be log VKEY, witness NAME VKEY, group NAME K"
                " MEMBER… or quorum NAME, with a new NAME, and members from lines above",
                reason="policy",
            )
    if reader.quorum is None:
        raise MalformedHistory("the policy has no line quorum; without witnesses write quorum none", reason="policy")
    return Policy(tuple(reader.logs), reader.witnesses, reader.groups, reader.quorum)
