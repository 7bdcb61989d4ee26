"""Broker clients that sinks and sources share."""


class UnavailableError(Exception):
    """A broker or folder cannot be used at the moment; the text tells users why."""
