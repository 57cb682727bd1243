"""Signs what a node writes to the lake: a line of each manifest, and the states with the tree of all lines.

Without a key file there is no history to sign with, and the lake is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from eventd.egress.lake.coverage import LakeCoverage, read_states
from eventd.egress.lake.protocol import FilesOffer, SignedFiles
from eventd.lake.archive_checks import SignedLines
from eventd.lake.file_tree import (
    FileTree,
    LineKind,
    TreeLine,
    checkpoint_of,
    digest_of_state,
    key_of,
    line_of,
    lines_folder,
    read_line,
    read_lines,
)
from eventd.lake.layout import SegmentName, day_of, parse_name, slug, state_path
from eventd.lake.listed_files import read_small
from eventd.lake.manifest import NodeState, Unreadable
from eventd.lake.schema import Ledger
from eventd.lake.state_files import decode_state
from eventd.lake.storage import Storage
from eventd.lake.writer import write_state
from eventd.runtime.chance import Chance
from eventd.witnessing.node_keys import NodeKeys, read_history_keys
from federation.errors import HistoryError
from federation.history.lake_checkpoints import LakeOrigin


class StateSigner:
    """The trees of the files of some nodes in one epoch. `keys` is the folder with the key file.

    `retention`: after how long the nodes themselves let segments expire (microseconds); 0: never. `kept`: by node, the
    tree that it has signed last, as its own database has it.
    """

    def __init__(
        self,
        storage: Storage,
        keys: Path,
        chance: Chance,
        retention: int = 0,
        kept: Mapping[str, SignedFiles] = MappingProxyType({}),
    ) -> None:
        self._storage = storage
        self._folder = keys
        self._chance = chance
        self._retention = retention
        self._kept = kept
        self._trees: dict[tuple[str, str], FileTree] = {}
        self._dropped: dict[tuple[str, str, str], int] = {}
        self._compared: dict[str, tuple[Mapping[Ledger, int], str]] = {}
        self._last_keys: NodeKeys | None = None

    def shipped(self, name: str, node: str, manifest: bytes, known: LakeCoverage) -> None:
        """Add a segment that is about to get this manifest. Raises LakeUnavailable."""
        if (keys := self._keys()) is not None:
            self._tree(node, known, keys).add([line_of(LineKind.SHIP, name, manifest)])

    def archived(self, place: SegmentName, node: str, manifest: bytes, known: LakeCoverage) -> None:
        """Add a segment of the archive that is about to get this manifest. Raises LakeUnavailable.

        The state of an earlier epoch is signed again at once, because nothing else will write it. One that another
        program changed is not signed.
        """
        if (keys := self._keys()) is None:
            return
        line = line_of(LineKind.ARCHIVE, place.name, manifest)
        if place.epoch == known.epoch:
            self._tree(node, known, keys).add([line])
            return
        state = _read_signed(self._storage, node, place.epoch, _public(keys))
        tree = None if state is None else FileTree.resume(self._storage, state, _public(keys))
        if state is not None and tree is not None:
            tree.add([line])
            cosigned = "" if state.tree is None else state.tree.cosigned
            write_state(self._storage, tree.sign(state, keys.log, cosigned))

    def signed_lines(self, node: str, epoch: str, known: LakeCoverage) -> SignedLines | None:
        """Return the lines of the node's tree in an epoch; None without one. Raises LakeUnavailable."""
        if (keys := self._keys()) is None:
            return None
        if epoch == known.epoch:
            return SignedLines(self._tree(node, known, keys).all_lines())
        state = read_states(self._storage, [node], epoch).get(node)
        tree = None if state is None else FileTree.resume(self._storage, state, _public(keys))
        return None if tree is None else SignedLines(tree.all_lines())

    def is_changed(self, state: NodeState) -> bool:
        """Return whether another program has changed this state of the present epoch in the lake.

        A state without a signature is that of a node which had no key before. Raises LakeUnavailable.
        """
        keys, kept = self._keys(), self._kept.get(state.node)
        if keys is None or (state.tree is None and (kept is None or kept.epoch != state.epoch)):
            return False
        return _read_signed(self._storage, state.node, state.epoch, _public(keys)) != state

    def offers(self, known: LakeCoverage, held: Mapping[str, Iterable[int]]) -> tuple[FilesOffer, ...]:
        """Return the checkpoints in the states of the nodes, with consistency proofs from the smaller sizes in `held`.

        Sizes from which the lines in the lake give no proof are left out. Raises LakeUnavailable.
        """
        found = []
        for node, state in known.states.items():
            tree = self._trees.get((node, known.epoch))
            if state.tree is None or tree is None:
                continue
            last = checkpoint_of(state.tree).size
            made = tree.prove_each((one for one in held.get(node, ()) if 0 < one < last), last)
            proofs = {size: tuple(one.hex() for one in proof) for size, proof in made.items()}
            found.append(FilesOffer(node=node, note=state.tree.note, proofs=proofs))
        return tuple(found)

    def write(self, state: NodeState, known: LakeCoverage, cosigned: str = "") -> NodeState:
        """Write a state of the node, signed; return it. The signature covers what retention has removed since, too.

        `cosigned`: the last checkpoint that witnesses have cosigned; without one, that of the last state stays.

        Raises TooLargeState and LakeUnavailable.
        """
        if (keys := self._keys()) is None:
            signed = replace(state, tree=None)
            write_state(self._storage, signed)
            return signed
        tree = self._tree(state.node, known, keys)
        before = known.states.get(state.node)
        if before is not None and (drops := self._drops(replace(state, tree=before.tree))):
            tree.add(drops)
        if before is not None and before.tree is not None:
            cosigned = cosigned or before.tree.cosigned
        if tree.is_begun:  # or a process that is killed leaves a state about lines that are not there
            tree.flush()
        signed = tree.sign(state, keys.log, cosigned if tree.is_named(cosigned) else "")
        write_state(self._storage, signed)
        tree.flush()
        return signed

    def files(self, known: LakeCoverage) -> tuple[SignedFiles, ...]:
        """Return what the last states of the nodes are signed with, of the trees that this process adds to.

        Others were only read from the lake, where anyone may have written them.
        """
        states = [state for node, state in sorted(known.states.items()) if (node, known.epoch) in self._trees]
        signed = [checkpoint_of(state.tree) for state in states if state.tree is not None]
        return tuple(SignedFiles(**one.origin._asdict(), size=one.size) for one in signed)

    def _drops(self, state: NodeState) -> list[TreeLine]:
        """Return the lines of what the node's own retention has removed since.

        Anyone may withdraw rows in the state of a node. So the node signs the removal of no segment that its own
        retention would have kept, by the day in the line that it signed itself.
        """
        if not self._retention:
            return []
        withdrawn = {
            book: reach.after
            for book, reach in sorted(state.segments.items())
            if reach.after > self._dropped.get((state.node, state.epoch, book), 0)
        }
        day = day_of(state.as_of - self._retention)
        if self._compared.get(state.node) == (withdrawn, day):  # the lines of a year take seconds to read
            return []
        self._compared[state.node] = withdrawn, day
        lines = []
        for book, upto in self._expired(state, withdrawn, day).items():
            if upto > self._dropped.get((state.node, state.epoch, book), 0):
                self._dropped[state.node, state.epoch, book] = upto
                lines.append(TreeLine(LineKind.DROP, book.value, (str(upto),)))
        return lines

    def _expired(self, state: NodeState, withdrawn: Mapping[Ledger, int], day: str) -> dict[Ledger, int]:
        """Return up to which numbers these ledgers, withdrawn up to a number each, have only segments before a day.

        Notes the removals that are signed already: those of an earlier process, too.
        """
        found = {**withdrawn}
        if not withdrawn or state.tree is None:
            return found
        signed = checkpoint_of(state.tree)
        for at, line in enumerate(map(read_line, read_lines(self._storage, lines_folder(*signed.origin)))):
            if line is not None and line.kind is LineKind.DROP and at < signed.size:  # anyone can append another one
                ledger = state.node, state.epoch, line.name
                self._dropped[ledger] = max(int(line.values[0]), self._dropped.get(ledger, 0))
            place = parse_name(line.name) if line is not None and line.kind is LineKind.SHIP else None
            if place is not None and place.day >= day and place.after < found.get(place.book, 0):
                found[place.book] = place.after
        return found

    def _tree(self, node: str, known: LakeCoverage, keys: NodeKeys) -> FileTree:
        """Return the tree of a node in the epoch of `known`; begin one if there is none that may be continued."""
        name = node, known.epoch
        if name not in self._trees:
            state, kept = known.states.get(node), self._kept.get(node)
            kept = None if kept is None or kept.epoch != known.epoch else kept
            tree = None
            if state is not None and (kept is None or _is_continued(state, kept)):
                tree = FileTree.resume(self._storage, state, _public(keys))
            if tree is None:
                origin = LakeOrigin(node, known.epoch, self._chance.token(8).hex())
                reaches = {kept.book: reach.upto for kept, reach in known.reaches.items() if kept.node == node}
                tree = FileTree.begin(self._storage, origin, reaches)
                if state is not None:
                    known.states[node] = tree.sign(state, keys.log)
                    write_state(self._storage, known.states[node])
                    tree.flush()
                if kept is not None:
                    tree.add([TreeLine(LineKind.AFTER, kept.tree, (str(kept.size),))])
            self._trees[name] = tree
        return self._trees[name]

    def _keys(self) -> NodeKeys | None:
        """Return the keys of the node; those it had if the file was deleted: what is shipped unsigned looks forged."""
        if self._folder != Path():
            self._last_keys = read_history_keys(self._folder) or self._last_keys
        return self._last_keys


def _is_continued(state: NodeState, kept: SignedFiles) -> bool:
    """Return whether a state is signed with the tree that its node keeps, and no smaller one: it was not put back."""
    try:
        signed = None if state.tree is None else checkpoint_of(state.tree)
    except HistoryError:
        return False
    return signed is not None and signed.origin.tree == kept.tree and signed.size >= kept.size


def _read_signed(storage: Storage, node: str, epoch: str, keys: set[bytes]) -> NodeState | None:
    """Return the state of a node in the lake if it is the one that the note in it is about, signed with these keys.

    Anyone may change a state and leave the note, or sign with another key. Raises LakeUnavailable.
    """
    path = state_path(node, epoch)
    text = read_small(storage, [path]).get(path, b"")
    try:
        state = decode_state(text, slug(node), epoch)
        if state.tree is None or checkpoint_of(state.tree).state != digest_of_state(text):
            return None
        return state if key_of(state.tree).public in keys else None
    except (Unreadable, HistoryError):
        return None


def _public(keys: NodeKeys) -> set[bytes]:
    """Return the public keys that may have signed the tree until now: also that before a rotation."""
    return {key.public_key().public_bytes_raw() for key in (keys.log, keys.retired) if key is not None}
