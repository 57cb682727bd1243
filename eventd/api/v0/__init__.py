"""Topics, routers, watches and queues over HTTP under /v0."""
