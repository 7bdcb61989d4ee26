"""Texts too long for their place: a number there, the text below the drawing."""

from dataclasses import dataclass, field, replace

from ensue.algebra.text import show_name, show_types
from ensue.plan.physical import Absence, Plan, Role
from ensue.plan.show.drawing.canvas import DARK, DIM, LINE, Canvas, short, width_of, wrapped
from ensue.plan.show.explain import absence_text

INLINE = 26  # characters that still fit beside an arrow
FEW = 2  # lines that do
LONG = 96  # characters of a line of the legend


def event_label(role: Role) -> str:
    """The type and the variable of an event, cut where they are long.

    >>> event_label(Role("a", "a_long_name_of_a_type_of_events"))
    'a_long_name_of_a_… a'
    """
    if role.inner is not None:
        return short(role.variable, 32)
    brackets = "" if role.kleene is None else "[]"
    return f"{short(show_types(role.type), 18)} {short(show_name(role.variable), 14)}{brackets}"


@dataclass
class Legend:
    """Numbered tests, negations and remarks, in the order they were met."""

    plan: Plan
    tests: list[str] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    negations: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def lines(self, tests: list[str], *, most: int = INLINE) -> list[str]:
        """The tests themselves where they are few and short, else their numbers."""
        if len(tests) <= FEW and all(len(test) <= most for test in tests):
            return tests
        marks = [f"[{number}]" for number in sorted(self._number(test) for test in tests)]
        size = max(1, most // 5)
        return [" ".join(marks[k : k + size]) for k in range(0, len(marks), size)]

    def _number(self, test: str) -> int:
        if test not in self.tests:
            self.tests.append(test)
        return self.tests.index(test) + 1

    def word(self, word: str, meaning: str) -> None:
        """What a word on an edge means, said once."""
        self.words.setdefault(word, meaning)

    def negation(self, absence: Absence, when: str = "") -> str:
        """What stands in the dark circle of a negation."""
        role = self.plan.role(absence.variable)
        whole = replace(absence, conditions=(*role.conditions, *absence.conditions))
        text = absence_text(self.plan, whole) + (f": {when}" if when else "")
        if text not in self.negations:
            self.negations.append(text)
        return event_label(role)

    def draw(self, canvas: Canvas) -> None:
        """Writes the legend below everything else."""
        x, y = canvas.left, canvas.bottom + 2 * LINE
        indent = max((width_of(f"[{len(self.tests)}] ", mono=True), 24))
        for number, test in enumerate(self.tests, 1):
            canvas.text((x, y), f"[{number}]", mono=True, color=DIM)
            for line in wrapped(test, LONG):
                canvas.text((x + indent, y), line, mono=True)
                y += LINE
        for word, meaning in sorted(self.words.items()):
            canvas.text((x, y), f"{word}: {meaning}", color=DIM)
            y += LINE
        for negation in self.negations:
            canvas.box((x + 8, y - 4), 12, 12, fill=DARK, stroke=DARK, round=6)
            for line in wrapped(negation, LONG):
                canvas.text((x + indent, y), line, mono=True)
                y += LINE
        for remark in self.remarks:
            for line in wrapped(remark, LONG):
                canvas.text((x, y), line, color=DIM)
                y += LINE
