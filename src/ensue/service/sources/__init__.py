"""Events on their way in: from brokers and folders, each with the position that was reached."""
