"""A federation of real nodes, its lake, and damage done to both by hand, for the proof that the audit finds it.

`federation` runs the nodes, `lake_files` and `databases` are the tools of whoever does the damage, `ledgers` computes
with DuckDB what is wrong afterwards, and `damages` is the list. None of them uses the code of the audit.
"""
