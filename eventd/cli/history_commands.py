"""The commands `routerctl prove` and `routerctl log`."""

from __future__ import annotations

from typing import Final

from eventd.cli.program.command_line import Branch, Leaf

HISTORY: Final[dict[str, Leaf | Branch]] = {
    "prove": Branch(
        "Prove events to a third party: `prove EVENT_ID` writes a proof file, `prove check FILE` checks it.",
        {
            "event": Leaf(
                "history.prove.prove",
                "Write a file that proves to a third party that this node admitted an event; exits with status 4 if it"
                " cannot.",
            ),
            "check": Leaf(
                "history.check.check",
                "Check a proof file offline and say what it proves; exits with status 4 if it proves nothing.",
            ),
        },
        usual="event",
    ),
    "log": Branch(
        "Show the verifiable history of groups: trees, checkpoints, proofs and keys.",
        {
            "status": Leaf("history.log.status", "List the trees of groups, the newest first of each."),
            "checkpoint": Leaf("history.log.checkpoint", "Print a signed checkpoint of a tree."),
            "consistency": Leaf(
                "history.log.consistency",
                "Prove that a tree begins with all leaves of a smaller one; exits with status 4 if it does not.",
            ),
            "export": Leaf(
                "history.export.export",
                "Write a tree to a folder, in the layout that tools for transparency logs read.",
            ),
            "check": Leaf(
                "history.exported.check",
                "Check an exported tree offline; exits with status 4 if its tiles, root and signature do not fit"
                " together.",
            ),
            "witnesses": Branch(
                "Show the witnesses of this node's tree, and reset what is known of a node.",
                {
                    "list": Leaf(
                        "history.witnesses.witnesses",
                        "List the peers as witnesses of this node's tree, and what this node holds of theirs.",
                    ),
                    "reset": Leaf(
                        "history.witnesses.reset",
                        "Confirm the findings about a node, and forget its keys and trees: what it shows next is taken"
                        " over.",
                    ),
                },
                usual="list",
            ),
            "findings": Branch(
                "Show findings about trees: forks, rollbacks, and what could not be proven.",
                {
                    "list": Leaf(
                        "history.witnesses.findings",
                        "List findings about trees, newest first: forks, rollbacks, and what could not be proven.",
                    ),
                    "show": Leaf(
                        "history.witnesses.finding",
                        "Show a finding with the notes it rests on; with --out, write a fork as a file for `routerctl"
                        " prove check`.",
                    ),
                },
                usual="list",
            ),
            "keys": Branch(
                "Show the public keys of trees, and rotate the key of this node.",
                {
                    "list": Leaf("history.log.keys", "Print the public keys of a group's trees as a policy file."),
                    "rotate": Leaf(
                        "history.witnesses.rotate",
                        "Replace the key that signs the trees of this node; each group with a history opens a tree.",
                    ),
                },
                usual="list",
            ),
        },
    ),
}
