"""Numbers as OPSL writes them."""


def number_text(number: int | float) -> str:
    """A number that reads back as the same one.

    >>> number_text(50.0), number_text(0.1), number_text(7)
    ('50', '0.1', '7')
    """
    if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
        return str(int(number))
    return repr(number)
