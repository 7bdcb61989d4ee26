"""Grammars that are read once a machine: Lark's tables are kept beside compiled kernels.

To work them out of a grammar takes Lark half a second, to load them a twentieth of that.
"""

import hashlib
import pickle
import sys
from importlib.resources import files
from io import BytesIO
from typing import Any

import lark
from lark import Lark

from ensue import private_files

# What Lark raises where tables are not those that it expects.
_UNREADABLE = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, KeyError, TypeError)


def grammar(package: str, name: str, **options: Any) -> Lark:
    """The parser of a grammar in a package; its tables are known by all that they depend on."""
    text = files(package).joinpath(name).read_text("utf-8")
    options |= {"parser": "lalr", "lexer": "contextual"}
    options |= {"propagate_positions": True, "maybe_placeholders": True}
    kept = f"grammar-{_digest(text, options)}"
    found = private_files.read(kept)
    if found is not None:
        try:
            return Lark.load(BytesIO(found))
        except _UNREADABLE as error:
            why = f"{type(error).__name__}: {error}"
            private_files.say_once("grammar", f"the kept tables of {name} are made anew ({why})")
    made = Lark(text, **options)
    tables = BytesIO()
    made.save(tables)
    private_files.write(kept, tables.getvalue())
    return made


def _digest(text: str, options: dict[str, Any]) -> str:
    said = [(name, getattr(value, "always_accept", value)) for name, value in options.items()]
    known = (lark.__version__, sys.version_info[:2], text, sorted(said))
    return hashlib.sha256(repr(known).encode()).hexdigest()[:32]
