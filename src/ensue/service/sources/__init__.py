"""Sources of events: brokers and folders, each with its stored position."""
