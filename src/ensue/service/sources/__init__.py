"""Sources of events: what they have in common, and folders; `brokers` has the others."""
