"""The boards in deploy/grafana: `python -m tests.support.grafana` writes them anew.

They are made by a program because each has dozens of panels, in which one meaning has one colour, unit and legend.
"""
