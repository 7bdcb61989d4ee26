"""Where a note goes within a broker, and what stands outside its body there."""

from collections.abc import Callable
from string import Formatter

from ensue.errors import ServiceError, did_you_mean
from ensue.service.notes import MATCH, Note

FIELDS = ("user", "subscription", "kind")


class Destination:
    """A topic or subject with the note's user, subscription or kind in it.

    >>> note = Note(12, 7, 3, "match", "a1", 0.0, b"{}")
    >>> Destination("mqtt target: 'topic'", "ensue/{user}/{subscription}").of(note)
    'ensue/3/7'
    """

    def __init__(
        self, what: str, text: str, problem: Callable[[str], str | None] = lambda _: None
    ) -> None:
        self._text = text
        self._fixed = "{" not in text and "}" not in text
        self._check(what, problem)

    def of(self, note: Note) -> str:
        """Where this note goes."""
        if self._fixed:
            return self._text
        return self._text.format(user=note.user, subscription=note.subscription, kind=note.kind)

    def _check(self, what: str, problem: Callable[[str], str | None]) -> None:
        hint = f"a name in which {', '.join(f'{{{name}}}' for name in FIELDS)} may stand"
        try:
            parts = list(Formatter().parse(self._text))
        except ValueError:
            raise ServiceError(
                f"{what}: '{self._text}' has an unmatched brace\n  hint: {hint}"
            ) from None
        for _, name, form, conversion in parts:
            if name is not None and name not in FIELDS:
                near = did_you_mean(name, FIELDS) or hint
                raise ServiceError(f"{what}: no note has a '{name}'\n  hint: {near}")
            if form or conversion:
                raise ServiceError(f"{what}: '{self._text}' has a format in it\n  hint: {hint}")
        wrong = problem(self.of(Note(1, 1, 1, MATCH, None, 0.0, b"")))
        if wrong is not None:
            raise ServiceError(f"{what}: '{self._text}' {wrong}")

    def __repr__(self) -> str:
        return f"Destination({self._text!r})"


def key_of(note: Note) -> str:
    """What notes of a topic are told apart by: the match, or else the subscription."""
    return note.match_id or str(note.subscription)


def identity_of(note: Note) -> str:
    """The same for every try to deliver a note, so that a receiver can drop repeats."""
    return note.match_id or f"sub_{note.subscription}_{note.kind}_{note.number}"


def headings_of(note: Note) -> dict[str, str]:
    """What a receiver may want to know before it reads the body."""
    return {
        "kind": note.kind,
        "subscription": str(note.subscription),
        "number": str(note.number),
    }
