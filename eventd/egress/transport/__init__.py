"""The one HTTP client of the sinks, for peers and callbacks: connections, their limit, and what a failure means.

May import: egress.loop, net, runtime, tls.
"""
