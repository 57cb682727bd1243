"""The database: how it is opened, what lies in it, and one file per family of rows beside the log."""

from __future__ import annotations
