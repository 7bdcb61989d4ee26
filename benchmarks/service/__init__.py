"""The service, measured: listeners, outbox, from an event to its notification."""
