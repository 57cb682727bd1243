"""The federation of the campaign: three real nodes that exchange events for some hours and ship to one lake.

The group `edge` is a full mesh whose nodes sign with Ed25519 keys of their own; `line` has one shared secret and leads
from `a` over `b`, which relays, to `c`, which would relay to `b` and leaves out all that came through `b`. The clock of
`c` is ahead, and `c` ships no payloads. Node `a` does not send type `u` to `c`; one event expires before `c` can have
it, and an operator has two events sent to `b` once more.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from eventd.runtime.clock import SECOND, SystemClock
from tests.support.declared import PLAIN_GROUP, declare, group, peer
from tests.support.ports import free_port
from tests.support.sites import Site
from tests.support.stopped_nodes import ship

NODES = ("a", "b", "c")
AUDITOR = "auditor.yaml"
"""The file with the keys of all groups, in the folder of the keys, as an auditor gives it to the audit."""
WITH_PAYLOADS = ("a", "b")
AHEAD = 40 * SECOND
"""How far the clock of `c` is ahead."""
HOUR = 3600 * SECOND
ROUNDS = 3
EVENTS = 12
"""Events of each node in each round in the group `edge`."""
RELAYED = 6
"""Events of `a` in each round in the group `line`."""


class ShiftedClock(SystemClock):
    """The machine's clock with its wall time off by `shift` microseconds, which may be changed while no task waits."""

    def __init__(self, shift: int) -> None:
        self.shift = shift
        super().__init__()

    def now(self) -> int:
        return super().now() + self.shift


@dataclass
class Federation:
    """The databases that the nodes have left behind, as they were before the last shipping, and the lake.

    `now` is the time of the last shipping, in microseconds by a right clock; an audit is run at that time. `copy_url`
    copies a database that is not a SQLite file and returns the URL of the copy.
    """

    root: Path
    now: int
    urls: Mapping[str, str]
    copy_url: Callable[[str], str] = str
    unshipped: dict[str, str] = field(default_factory=dict)

    @property
    def early(self) -> Path:
        """Return the lake as it was before the last round, from which databases can be shipped once more."""
        return self.root / "early"

    @property
    def lake(self) -> Path:
        """Return the whole lake."""
        return self.root / "lake"

    @property
    def keys(self) -> Path:
        """Return the folder with `NODE.pem`, `NODE.pub`, `line.secret`, and `auditor.yaml` with the groups' keys."""
        return self.root / "keys"

    def backup(self, node: str) -> Path:
        """Return the SQLite file of a node as it was after the round before the last one."""
        return self.root / "backups" / f"{node}.db"

    def copy_databases(self, folder: Path, urls: Mapping[str, str]) -> dict[str, str]:
        """Copy the databases behind `urls`, SQLite files to a folder; return the URLs of the copies."""
        folder.mkdir(parents=True, exist_ok=True)
        return {node: self._copy(url, folder / f"{node}.db") for node, url in urls.items()}

    def _copy(self, url: str, file: Path) -> str:
        if not url.startswith("sqlite:"):
            return self.copy_url(url)
        shutil.copyfile(url.removeprefix("sqlite:///"), file)
        return f"sqlite:///{file}"

    def ship(self, urls: Mapping[str, str], lake: Path) -> None:
        """Ship the ledgers of these databases."""
        for node, url in urls.items():
            ship(url, lake, now=self.now + (AHEAD if node == "c" else 0), payloads=node in WITH_PAYLOADS)


async def run_federation(
    root: Path, urls: Mapping[str, str] | None = None, copy_url: Callable[[str], str] = str
) -> Federation:
    """Run the nodes over all rounds, ship, and stop them; `urls` names databases of nodes that are not SQLite files."""
    clocks = {node: ShiftedClock(-(ROUNDS + 1) * HOUR) for node in NODES}
    clocks["c"].shift += AHEAD
    sites = {node: Site(node, root / "sites", url=(urls or {}).get(node, ""), clock=clocks[node]) for node in NODES}
    made = Federation(root, 0, {node: site.url for node, site in sites.items()}, copy_url)
    _make_keys(made.keys)
    for number in range(1, ROUNDS + 1):
        for site in sites.values():
            await site.start()
        try:
            if number == 1:
                await _join(sites, made.keys)
            await _round(sites, clocks, number)
        finally:
            for site in sites.values():
                await site.stop()
        made.now = clocks["a"].now() + 60 * SECOND
        if number < ROUNDS:
            made.ship(made.urls, made.early)
            made.copy_databases(root / "backups", made.urls)
            _forward(clocks)
    made.unshipped = made.copy_databases(root / "unshipped", made.urls)
    shutil.copytree(made.early, made.lake)
    made.ship(made.urls, made.lake)
    return made


def _make_keys(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "line.secret").write_text("0123456789abcdef0123456789abcdef\n")
    for node in NODES:
        private = Ed25519PrivateKey.generate()
        text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{node}.pem").write_bytes(text)
        public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{node}.pub").write_bytes(public)
    public = [
        {"id": f"k-{node}", "owner": node, "algorithm": "ed25519", "publicKeyFile": str(folder / f"{node}.pub")}
        for node in NODES
    ]
    groups = group("auditor", auth={"keys": public}), group("auditor", secret=folder / "line.secret", name="line")
    (folder / AUDITOR).write_text(declare(*groups))
    for file in folder.iterdir():
        file.chmod(0o600)


async def _join(sites: Mapping[str, Site], keys: Path) -> None:
    ports = {node: free_port() for node in NODES}  # of the second group
    for node, site in sites.items():
        ring = [
            {"id": f"k-{one}", "owner": one, "algorithm": "ed25519"}
            | ({"secretFile": str(keys / f"{one}.pem")} if one == node else {"publicKeyFile": str(keys / f"{one}.pub")})
            for one in NODES
        ]
        # A round is shorter than it takes a node that was started again to sign; trees have a federation of their own.
        await site.apply(group(node, port=site.port, auth={"keys": ring}, protocols=["v2"], **PLAIN_GROUP))
        await site.apply(group(node, port=ports[node], secret=keys / "line.secret", name="line", **PLAIN_GROUP))
    for node, site in sites.items():
        others = {name: other for name, other in sites.items() if name != node}
        narrow = {"types": ["t"]} if node == "a" else {}
        await site.apply(*[peer(name, other.port, **(narrow if name == "c" else {})) for name, other in others.items()])
    await sites["a"].apply(peer("b", ports["b"], group="line"))
    await sites["b"].apply(peer("c", ports["c"], group="line", relay=True))
    await sites["c"].apply(peer("b", ports["b"], group="line", relay=True))


async def _round(sites: Mapping[str, Site], clocks: Mapping[str, ShiftedClock], number: int) -> None:
    """Emit, and wait until all nodes have everything."""
    a, c = sites["a"], sites["c"]
    for node, site in sites.items():
        for at in range(EVENTS):
            if at == EVENTS // 2:  # however slow the links are, they do not send all of a round as one batch
                await site.caught_up(*[other for other in sites if other != node])
            type = "u" if at % 6 == 5 else "t"
            await site.emit(
                f"{node}-{number}-{at:02}", type=type, subject=f"10.{number}.0.{at}/32", payload={"n": str(at)}
            )
    for at in range(RELAYED):
        await a.emit(f"line-{number}-{at:02}", group="line", subject=f"host-{at}", payload={"n": str(at)})
    await c.holds(*[f"line-{number}-{at:02}" for at in range(RELAYED)], group="line")
    await _settle(sites)
    if number == 2:
        await _expire(sites, clocks)
    if number == ROUNDS:
        await a.ask("deliveries.redeliver", group="edge", peer="b", ids=["a-3-00", "a-3-01"])
    await _settle(sites)


async def _settle(sites: Mapping[str, Site]) -> None:
    for node, site in sites.items():
        await site.caught_up(*[other for other in sites if other != node])
    await sites["a"].caught_up("b", group="line")
    await sites["b"].caught_up("c", group="line")
    await sites["c"].caught_up("b", group="line")


async def _expire(sites: Mapping[str, Site], clocks: Mapping[str, ShiftedClock]) -> None:
    """Have one event expire while `c` is down."""
    await sites["c"].stop()
    await sites["a"].emit("a-2-expired", ttl="10m")
    await sites["a"].caught_up("b")
    for clock in clocks.values():
        clock.shift += 1200 * SECOND
    await sites["c"].start()


def _forward(clocks: Mapping[str, ShiftedClock]) -> None:
    for clock in clocks.values():
        clock.shift += HOUR
