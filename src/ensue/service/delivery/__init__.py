"""Delivery of notifications: the dispatcher, and the sinks that it sends them to."""
