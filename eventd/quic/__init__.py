"""QUIC over UDP, for node and client: connections, their streams as callbacks, certificates and trust.

The library comes with the extra `quic`. `library.py` loads `connection.py` and with it the library when the first
server or client starts; every other file of the room can be imported without it.

May import: runtime, tls.
"""
