"""The console: pages with a map, subscriptions, notifications and the service's health."""
