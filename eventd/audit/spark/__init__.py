"""Spark sessions and Spark's file systems: Java, logging, and the packages for a cluster.

May import: lake, settings, text.
"""
