"""The tables of a service's database: functions over a connection, by subject."""
