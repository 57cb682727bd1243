"""The checks of receipts: against their digests and rows and, with keys, their signatures.

May import: audit.arrays, audit.report, lake, resources, resources.kinds, runtime.
"""
