"""How subscriptions are run: joins of events, and how long each has to wait for the other."""
