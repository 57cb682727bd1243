"""The targets, in a module for each kind of format."""
