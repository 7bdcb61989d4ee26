"""Diagnostics: explain to a user why a result is as it is."""
