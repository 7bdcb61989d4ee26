"""Query languages: text to algebra, and algebra to text."""
