"""Broker clients that sinks and sources share."""
