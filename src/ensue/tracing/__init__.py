"""A match opened down to the events it is made of: as a tree, as text, as a picture."""
