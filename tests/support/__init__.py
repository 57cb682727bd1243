"""What tests stand on: a Postgres server, child processes, free ports, waiting for facts. Nothing here is shipped."""
