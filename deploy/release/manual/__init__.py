"""The manual pages, from the same command tree and settings as `--help`."""
