"""Mutation tests: change the code in small ways and check whether a test fails: `make mutants`."""
