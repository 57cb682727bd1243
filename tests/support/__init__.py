"""Shared code of the tests: a Postgres server, child processes, free ports, stand-ins, polling. Not part of the
package."""
