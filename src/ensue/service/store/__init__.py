"""What is in the file of a service, by subject: functions over a connection."""
