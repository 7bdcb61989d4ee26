"""Plans as drawings: a canvas, and one module for each structure."""
