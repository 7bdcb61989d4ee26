"""Subscriptions in the pattern language: one plan for all of one shape, the rest on their own."""
