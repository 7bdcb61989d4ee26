"""What Ensue costs: `make bench` measures it, `make bench-peers` compares it with others."""

import os

# Compile time is measured apart: kernels are compiled before anything is timed.
os.environ.setdefault("ENSUE_COMPILE", "always")
