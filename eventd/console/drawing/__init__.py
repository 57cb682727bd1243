"""Computes what pictures show and where: the map of a group, and charts. No page, no URL and no colour is known here.

May import: no other room.
"""
