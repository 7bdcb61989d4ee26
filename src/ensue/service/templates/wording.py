"""How a filled template is laid out: what it finds in words, the text, its definitions."""

import textwrap
from collections.abc import Iterable, Sequence

from ensue.service.templates.reading import Given, Place
from ensue.service.templates.template import Filled

_WIDTH = 92
_LONGEST = 120  # letters of a title


def laid_out(
    given: Given,
    title: str,
    says: str,
    conditions: Sequence[str],
    definitions: Iterable[str],
    place: Place | None = None,
    select: str | None = None,
) -> Filled:
    """OPSL that people can open: all conditions hold, what they speak of is defined below."""
    comment = textwrap.wrap(says, _WIDTH, initial_indent="-- ", subsequent_indent="-- ")
    first, *rest = conditions
    lines = ["\n".join([first, *(f"    && {condition}" for condition in rest)])]
    lines += [f"    {definition}" for definition in definitions]
    if place is not None and place.shape is not None:
        lines.append(f"    {place.name} = {place.shape}")
    text = "\n".join([*comment, ",\n".join(lines)])
    if select is not None:
        text += f"\nWITH select = {select}"
    quiet = given.length("quiet")
    title = title if len(title) <= _LONGEST else f"{title[: _LONGEST - 1]}…"
    return Filled(text, quiet.seconds if quiet else None, title)


def lasting(length: object) -> str:
    """For how long, as part of a sentence; nothing where it need not last."""
    return f" for {length}" if length else ""
