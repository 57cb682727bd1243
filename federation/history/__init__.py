"""Verifiable history, as pure values and rules: trees of what a node admitted, and the proofs that follow from them.

merkle       hashes of RFC 6962, and the compact range as which a growing tree is kept
tiles        the tiles in which a tree is stored and served (C2SP tlog-tiles), and proofs from them
proofs       inclusion and consistency: which subtrees a proof consists of, and its verification
multiproofs  many leaves at once: the fewest hashes that give the root with them, and the check
forms        the one form in which numbers, hashes and signatures are written
notes        signed notes and verifier keys (C2SP signed-note)
checkpoints  the size and root of a tree, as a note that its node signs (C2SP tlog-checkpoint)
lake_checkpoints  the same of the files that a node has written to a lake, with the digest of its state
cosignatures what a witness adds to a checkpoint (C2SP tlog-cosignature)
entries      the leaves of a tree: events, and the opening entry at index 0
witnessing   what a witness checks before it cosigns, and what it knows of the keys of others
exchange     the questions of `POST /v2/history` and their answers
bulk_answers what the answers to `range` and `prove` prove to the node that asked
leaf_hints   the header `Eventd-Leaves`: where the events of a batch have their leaves
fork_file    two signed states of one tree that contradict each other, as one file, and the check of it
policy       the keys that a verifier knows, and which witnesses must have cosigned (C2SP tlog-policy)
proof_file   one event with all that proves it, as one file, and the check of it (C2SP tlog-proof inside)
"""

from __future__ import annotations
