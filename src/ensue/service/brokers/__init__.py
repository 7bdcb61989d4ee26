"""Clients of brokers, as far as sinks and sources both need them."""
