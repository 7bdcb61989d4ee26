"""Ensue."""
