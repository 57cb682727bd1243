"""A federation of real nodes, its lake, and damage done to both by hand, for the proof that the audit finds it.

`federation` runs the nodes, `lake_files` edits the files of a lake, `damages` lists the damage, and `ledgers` computes
with DuckDB what is wrong afterwards. None of them uses the code of the audit.
"""
