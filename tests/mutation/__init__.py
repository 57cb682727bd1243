"""Changes the code in small ways and looks whether a test notices: `make mutants`."""
