"""Where the matches of a service are found: in its process, or on Spark."""
