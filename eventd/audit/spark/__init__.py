"""Spark sessions: Java, logging, and the packages for a cluster.

May import: settings.
"""
