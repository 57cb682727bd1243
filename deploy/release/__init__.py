"""Builds what operators install: wheel, Debian package, image, and the manual pages and files that belong to them."""
