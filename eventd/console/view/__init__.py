"""What pages read and do: the operations of the API, in this process or over HTTP.

May import: api, api.framework, api.keys, api.topics, client, runtime, store.rows.
"""
