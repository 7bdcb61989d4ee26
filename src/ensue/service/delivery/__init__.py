"""Notes on their way out: the courier, and the sinks that it hands them to."""
