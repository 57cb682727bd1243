"""Reports after they are written: compared with later ones, verified by their signature, their findings acknowledged.

May import: audit.report, lake, runtime, text.
"""
