"""Tests in a real browser: the machine's own Chromium, driven by Playwright. `make browser` installs what they need.

All of them are ordinary functions: Playwright's blocking interface occupies the event loop of the thread, so no test of
this package may be asynchronous. The browser is started once for the package, and each visitor has a profile of their
own.
"""
