"""What Ensue costs: `make bench` measures it, `make bench-peers` compares it with others."""
