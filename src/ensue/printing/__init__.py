"""Syntax trees as text: patterns, subscriptions, row patterns, and the expressions in them."""
