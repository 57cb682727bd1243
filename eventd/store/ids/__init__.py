"""The ids of events: rows of the table `event_ids`, and sorted runs for ids that arrive in no order.

May import: store.engine.
"""
