"""Shows the examples of docstrings as code.

They stand there as doctests do, which Markdown takes for quotations.
"""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>>.*\n?(?:^(?!\n).+\n?)*", re.MULTILINE)


class Doctests(Extension):
    """Puts every doctest into a block of code."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Called for each thing that has a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with a fence around each example.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nAnd more.")
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n\\nAnd more.'
    """
    return _EXAMPLE.sub(lambda code: f"```pycon\n{code[0].rstrip()}\n```\n", text)
