"""The table of nodes that subscriptions share, and what is held at them."""
