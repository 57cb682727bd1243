"""Settings: flags override the environment, which overrides the file, which overrides the defaults.

May import: lake, text, tls.
"""
