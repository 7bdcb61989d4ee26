"""Subscriptions: very many small questions about one stream, matched together."""
