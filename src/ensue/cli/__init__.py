"""The command `ensue`."""
