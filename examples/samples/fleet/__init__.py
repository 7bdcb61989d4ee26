"""What a day of trucks is made of: roads, depots, and stories of what happens there."""
