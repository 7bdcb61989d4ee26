"""The subscription service: events in, notifications out, nothing lost between."""
