"""The intermediate representation: every language parses into it, every plan starts from it."""
