"""Settings: flags override the environment, which overrides the file, which overrides the defaults.

May import: lake, net, text, tls.
"""
