"""One kind of damage: how it is done, and what an audit has to say about it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.support.campaign.federation import Federation
from tests.support.campaign.lake_files import LakeFiles
from tests.support.campaign.ledgers import Ledgers


@dataclass
class Scene:
    """A copy of what the federation left behind, to be damaged; random choices depend on its name only.

    `ledgers` has the tables of the lake before the damage, `urls` are those of the copied databases.
    """

    federation: Federation
    root: Path
    ledgers: Ledgers
    chance: random.Random
    urls: Mapping[str, str]

    @property
    def lake(self) -> LakeFiles:
        """Return the copy of the lake."""
        return LakeFiles(self.root / "lake")

    def sql(self, node: str, statement: str, **values: Any) -> list[Any]:
        """Run a statement in the copy of a node's database; return its rows."""
        engine = sa.create_engine(self.urls[node], poolclass=sa.NullPool)
        with engine.begin() as connection:
            result = connection.execute(sa.text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def pick(self, query: str, *values: Any) -> Any:
        """Return a random row of a query; of a single column its value."""
        rows = self.ledgers.ask(query, *values)
        assert rows, f"nothing to pick: {query}"
        row = self.chance.choice(rows)
        return row[0] if len(row) == 1 else row

    def pick_run(self, query: str, length: int) -> list[Any]:
        """Return so many neighbouring values of a query with one column, from a random place on."""
        values = self.ledgers.column(query)
        assert len(values) > length, f"too few to pick {length}: {query}"
        start = self.chance.randrange(1, len(values) - length)
        return values[start : start + length]


@dataclass(frozen=True)
class Damage:
    """One kind of damage.

    `does` and `found_by` are its row in the page on the audit, in plain words. `inflict` damages a scene: with
    `in_databases`, the copies of the databases, which are then shipped; else the lake. `wanted` is a query over the
    ledgers `before` and `after` with the columns kind, node, id: the findings that the audit must have, where `node` is
    among the parties, and `id` a range of seqs like `3-5` for a finding without ids. `allowed` is a query like that for
    further findings that are true as well: consequences of the damage. `unproven` is a regular expression for the
    reason, if the damage only makes events unprovable; `named` are then the only nodes that limitations may name, and
    the audit must not expect less than before, unless `shrinks`: no row shows any more that there was more. `blind`:
    the audit cannot see it, and reports the lake as complete. `remembers`: an audit has seen the lake before the
    damage. `keys`: the audit has the public keys. `audited_after`: microseconds between the last shipping and the
    audit.
    """

    name: str
    does: str
    found_by: str
    inflict: Callable[[Scene], None]
    wanted: str = ""
    allowed: str = ""
    unproven: str = ""
    named: frozenset[str] = frozenset()
    shrinks: bool = False
    blind: bool = False
    in_databases: bool = False
    remembers: bool = False
    keys: bool = False
    audited_after: int = 0

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of the findings that it leads to, in the order of the query."""
        return list(dict.fromkeys(re.findall(r"SELECT (?:DISTINCT )?'(\w+)',", self.wanted)))
