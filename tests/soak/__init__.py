"""Soak: real nodes under constant load with a fault a minute, and whether anything grows: `make soak`."""
