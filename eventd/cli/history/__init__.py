"""The commands of the verifiable history: proofs of events, their check, and the trees of a node.

May import: cli.gateway, cli.program, cli.terminal, lake, runtime, text.
"""
