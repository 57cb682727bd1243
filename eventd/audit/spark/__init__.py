"""Spark sessions: Java, logging, and what a cluster needs.

May import: settings.
"""
