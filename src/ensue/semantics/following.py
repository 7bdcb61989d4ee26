"""What runs of a query may take: the events that a match passes over, and when its loops end.

A run is a beginning of a match. It goes from one event to the next by the steps of what remains of
the pattern, and each step says what the gap before its event must not hold.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ensue.algebra.form import optional
from ensue.algebra.leaving import (
    barred_by_the_end,
    demanded,
    goes_on_at_the_end,
    preferred,
)
from ensue.algebra.pattern import Leave, Pattern
from ensue.algebra.policy import CONTIGUOUS, Strategy
from ensue.algebra.predicate import At, Expr, Field
from ensue.algebra.residual import (
    Guard,
    Step,
    Where,
    advance,
    open_loops,
    passed,
    readings,
    steps,
    uncounted,
)
from ensue.algebra.walk import (
    atoms,
    entries,
    leaves,
    loops,
    negations,
    positives,
    references,
    untils,
    variables,
)
from ensue.algebra.window import ByTime, ByUnits
from ensue.schema import takes
from ensue.semantics.arrangements import arranged, ways
from ensue.semantics.conditions import MOVING, holds
from ensue.semantics.events import Binding, Event, before, members

if TYPE_CHECKING:
    from ensue.semantics.partition import Partition

Taken = list[tuple[str, Event]]


class Following:
    """The runs of a query over the events of one key."""

    def __init__(self, partition: "Partition") -> None:
        self.partition = partition
        self.query = partition.query
        pattern = self.query.pattern
        self.mixed = any(entries(pattern))
        self.wilful = bool({*leaves(pattern)} - {Leave.FORK})
        self.looped = {n for loop in loops(pattern) for n in negations(loop)}
        self.guarded = bool(self.looped) or any(untils(pattern))
        self._waiting: dict[tuple[str, ...], set[str]] = {}  # by the variables bound so far

    def chosen(self, binding: Binding, *, whole: bool = False) -> bool:
        """Whether the strategy allows every event that the match passes over.

        And whether its loops end when they should; `whole`: it is no partial match.
        """
        by_runs = self.mixed or self.wilful or self.guarded
        chain = members(binding)
        match self.query.strategy:
            case _ if self.mixed:
                return self._followed(binding, whole)
            case Strategy.ANY:
                return not by_runs or self._followed(binding, whole)
            case Strategy.STRICT:
                adjacent = all(b.position - a.position == 1 for a, b in pairwise(chain))
                return adjacent and (not by_runs or self._followed(binding, whole))
            case Strategy.PARTITION:
                ranks = [self.partition.index[event.position] for event in chain]
                adjacent = all(b - a == 1 for a, b in pairwise(ranks))
                return adjacent and (not by_runs or self._followed(binding, whole))
            case Strategy.NEXT:
                return self._followed(binding, whole)

    def _followed(self, binding: Binding, whole: bool) -> bool:
        """Whether a run could take these events, and no others.

        What remains of a pattern may be read in several ways: each is a run of its own.
        """
        events = ((v, e) for v, es in binding.items() for e in es if not e.made_of)
        taken = sorted(events, key=lambda step: step[1].position)
        runs = self.runs(taken, ended=whole)
        return any(self._over(run, taken) for run in runs) if whole else bool(runs)

    def runs(self, taken: Taken, *, ended: bool = False) -> list[Pattern]:
        """What may remain of the pattern for runs that take these events.

        `ended`: they take no more, so that a negation at the start knows its window.
        """
        runs = [self.query.pattern]
        for k, (variable, event) in enumerate(taken):
            further = (
                step.rest
                for run in runs
                for step in self._steps(run, taken[:k], event)
                if step.variable == variable
                and (k or not ended or not self._begun_wrongly(step, taken))
            )
            runs = list(dict.fromkeys(further))
        return runs

    def _over(self, run: Pattern, taken: Taken) -> bool:
        """Whether a run may be a match: nothing is missing, and no greedy loop goes on."""
        return (
            optional(run)
            and all(
                self._free(guard, taken, None)
                for guard in passed(run)
                if guard.where is Where.NEXT or guard.negation in self.looped
            )
            and not (self.wilful and self._goes_further(run, taken))
        )

    def _goes_further(self, run: Pattern, taken: Taken) -> bool:
        """Whether an event comes that a greedy loop at the end takes."""
        return any(
            goes_on_at_the_end(step, run) and self.goes_on([*taken, (step.variable, event)])
            for event in self._behind(taken[-1][1])
            for step in self._steps(run, taken, event)
        )

    def _begun_wrongly(self, step: Step, taken: Taken) -> bool:
        """Whether a negation that begins a group forbids what came before a match.

        As outside of groups, it looks back over the window that ends at the last event.
        """
        first, inside = taken[0][1], [event for _, event in taken]
        return any(
            all(before(event, first) for event in members(negative))
            and self.partition.near_end(members(negative), inside)
            and all(holds(c, negative) for c in self._conditions_of(guard))
            for guard in self._guards(step)
            if guard.where is Where.BETWEEN
            for negative in ways(guard.negation.part, self.partition)
        )

    # ------------------------------------------------------------------------ one event

    def _steps(self, run: Pattern, prefix: Taken, event: Event) -> list[Step]:
        """What a run may do with an event: greedy and reluctant loops prefer one to another."""
        found = self._allowed(run, prefix, event)
        if not self.wilful:
            return found
        found = [s for s in found if not self._ends_rather(run, prefix, s)]
        gap = [*self._between(prefix, event), event] if prefix else [event]
        return [s for s in found if not any(self._barred(s, run, prefix, e) for e in gap)]

    def _barred(self, step: Step, run: Pattern, prefix: Taken, event: Event) -> bool:
        """Whether a loop wants another step by an event that is passed over, or taken."""
        rivals = [s for s in steps(run) if preferred(s, step)]
        return any(
            s in self._allowed(run, prefix, event)
            and not self._ends_rather(run, prefix, s)
            and self.goes_on([*prefix, (s.variable, event)])
            for s in rivals
        )

    def _allowed(self, run: Pattern, prefix: Taken, event: Event) -> list[Step]:
        """The steps that what lies between the event and the one before it allows."""
        found = [
            s
            for s in steps(run)
            if self._near(s, prefix, event)
            and all(self._free(guard, prefix, event) for guard in self._guards(s))
        ]
        if not prefix:
            return found
        gap = self._between(prefix, event)
        could: bool | None = None  # whether the run could use one of them
        kept = []
        for step in found:
            match step.how or self.query.strategy:
                case Strategy.ANY:
                    kept.append(step)
                case Strategy.NEXT if step.how is None:
                    if could is None:
                        could = any(self._usable(run, prefix, e) for e in gap)
                    if not could:
                        kept.append(step)
                case Strategy.NEXT:  # it speaks of its own event only
                    if not any(self.goes_on([*prefix, (step.variable, e)]) for e in gap):
                        kept.append(step)
                case Strategy.STRICT | Strategy.PARTITION as how:
                    if self._adjacent(how, prefix[-1][1], event):
                        kept.append(step)
        return kept

    def _between(self, prefix: Taken, event: Event) -> list[Event]:
        last = prefix[-1][1].position
        return [e for e in self.partition.events if last < e.position < event.position]

    def _behind(self, last: Event) -> list[Event]:
        return [e for e in self.partition.events if e.position > last.position]

    def _adjacent(self, how: Strategy, left: Event, right: Event) -> bool:
        """Whether nothing lies between two events, of the stream or of the partition."""
        if how is Strategy.STRICT:
            return right.position - left.position == 1
        index = self.partition.index
        return index[right.position] - index[left.position] == 1

    def _near(self, step: Step, prefix: Taken, event: Event) -> bool:
        """Whether the event before is no longer ago than the step says."""
        if not prefix:
            return True
        match step.pause:
            case None:
                return True
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                return event.start - prefix[-1][1].end <= length

    # ---------------------------------------------------------------------------- waiting

    def waits(self, run: Pattern, prefix: Taken, step: Step) -> bool:
        """Whether a step may still be taken when the window is over: nothing ended the wait.

        Where the query says nothing of the step, an event that took the run further ends it.
        """
        gap = [e for e in self._behind(prefix[-1][1]) if self._in_window(prefix, e)]
        if step.how is None and any(self._takes(run, prefix, e) for e in gap):
            return False
        gap = [e for e in gap if self._near(step, prefix, e)]
        match step.how or self.query.strategy:
            case Strategy.STRICT:
                return False  # the next event of the stream takes it, or ends the run
            case Strategy.PARTITION if gap:
                return False
            case Strategy.NEXT if any(
                self.goes_on([*prefix, (step.variable, event)]) for event in gap
            ):
                return False
            case _:
                pass
        return (
            not any(self._spoilt(guard, prefix, gap) for guard in step.guards)
            and not self._ends_rather(run, prefix, step)
            and not (self.wilful and any(self._barred(step, run, prefix, e) for e in gap))
        )

    def _in_window(self, prefix: Taken, event: Event) -> bool:
        return self.partition.near(_bound([*prefix, ("", event)]))

    def _takes(self, run: Pattern, prefix: Taken, event: Event) -> bool:
        return any(
            self.goes_on([*prefix, (step.variable, event)])
            for step in self._steps(run, prefix, event)
        )

    def _spoilt(self, guard: Guard, prefix: Taken, gap: list[Event]) -> bool:
        """Whether a guard forbids what has come, whatever the run would take."""
        binding, inside = _bound(prefix), {e.position for e in gap}
        conditions = self._conditions_of(guard)
        return any(
            all(e.position in inside for e in members(negative))
            and self._forbids(guard.where, members(negative), prefix, None)
            and all(holds(c, binding | negative) for c in conditions)
            for negative in ways(guard.negation.part, self.partition)
        )

    # ----------------------------------------------------------------------------- guards

    def _guards(self, step: Step) -> Iterator[Guard]:
        """What must not lie before a step. Other negations are judged by where they stand."""
        for guard in step.guards:
            if guard.where is not Where.BETWEEN or guard.negation in self.looped:
                yield guard

    def _conditions_of(self, guard: Guard) -> list[Expr]:
        """The conditions on the events that a guard forbids."""
        named = {a.variable for a in atoms(guard.negation.part)}
        return [c for c in self.partition.negative if variables(c) & named]

    def _free(self, guard: Guard, prefix: Taken, event: Event | None) -> bool:
        """Whether a guard lets a run go on with an event, or end where it is (None).

        Its conditions are judged by what the run has before it takes the event.
        """
        binding, conditions = _bound(prefix), self._conditions_of(guard)
        for negative in ways(guard.negation.part, self.partition):
            inside = members(negative)
            if self._forbids(guard.where, inside, prefix, event) and all(
                holds(c, binding | negative) for c in conditions
            ):
                return False
        return True

    def _forbids(
        self, where: Where, inside: list[Event], prefix: Taken, event: Event | None
    ) -> bool:
        """Whether events lie where a guard forbids them."""
        taken = event is not None and [e.position for e in inside] == [event.position]
        if where is Where.TAKEN:
            return taken
        if not prefix:
            return where is Where.UP_TO and taken
        last = prefix[-1][1]
        if where is Where.NEXT:
            (first,) = inside
            reached = event is not None or self.partition.near({**_bound(prefix), "": (first,)})
            return reached and self._adjacent(Strategy.PARTITION, last, first)
        between = all(
            e.start >= last.end
            and e.position > last.position
            and (event is None or e.position < event.position)
            for e in inside
        ) and (event is not None or self.partition.near({**_bound(prefix), "": (*inside,)}))
        return between or (where is Where.UP_TO and taken)

    # ---------------------------------------------------------- skip till next match

    def _usable(self, run: Pattern, prefix: Taken, event: Event) -> bool:
        """Whether a run that got this far must use this event."""
        found = [s for s in steps(run) if self._reaches(s, prefix, event)]
        # a loop that could only go on with the very next event is over when that has passed
        going = {loop for step in found for loop in step.inside}
        open_ = [loop for loop in open_loops(run) if not self._closes or loop in going]
        found = [s for s in found if not self._ends_rather(run, prefix, s)]
        return any(
            self.goes_on([*prefix, (step.variable, event)]) for step in demanded(found, open_)
        )

    @property
    def _closes(self) -> bool:
        """Whether a loop may be over before it is left."""
        return self.mixed or self.guarded

    def _reaches(self, step: Step, prefix: Taken, event: Event) -> bool:
        """Whether a step may be taken with an event that comes so late."""
        if not prefix:
            return True
        how = step.how or self.query.strategy
        return (
            (how not in CONTIGUOUS or self._adjacent(how, prefix[-1][1], event))
            and self._near(step, prefix, event)
            and all(self._free(guard, prefix, event) for guard in self._guards(step))
        )

    def _ends_rather(self, run: Pattern, prefix: Taken, step: Step) -> bool:
        """Whether a run is a match already, and a reluctant loop takes no more."""
        return (
            optional(run)
            and barred_by_the_end(step, run)
            and all(holds(condition, _bound(prefix)) for condition in self.partition.positive)
        )

    # ------------------------------------------------------------------------- conditions

    def goes_on(self, prefix: Taken) -> bool:
        """Whether these events may begin a match, as far as they can tell."""
        binding = _bound(prefix)
        partition, pattern = self.partition, self.query.pattern
        open_ = self._open(tuple(v for v, _ in prefix))
        types = {a.variable: a.type for a in positives(pattern)}
        decided = [c for c in partition.positive if self.decided(c, binding, open_)]
        closed = [
            s
            for s in partition.scopes(binding)
            if s.after
            and s.before
            and not s.whole
            and all(
                self.decided(c, binding, open_, {a.variable for a in atoms(s.negation)})
                for c in partition.negative
                if variables(c) & {a.variable for a in atoms(s.negation)}
            )
        ]
        return (
            all(takes(types[v], e.type) for v, e in prefix)
            and arranged(pattern, binding)
            and partition.near(binding)
            and all(holds(c, binding) for c in decided)
            and not any(partition.occurs(s, binding) for s in closed)
        )

    def _open(self, taken: tuple[str, ...]) -> set[str]:
        """The variables that may get events; a loop is open until it is left."""
        if taken not in self._waiting:
            rests = readings(uncounted(self.query.pattern), taken)
            self._waiting[taken] = {a.variable for rest in rests for a in positives(rest)}
        return self._waiting[taken]

    def decided(
        self,
        condition: Expr,
        binding: Binding,
        open_: set[str],
        negated: Iterable[str] = (),
    ) -> bool:
        """Whether later events cannot change what a condition says."""
        for ref in references(condition):
            if ref.variable in negated or ref.at in MOVING:
                continue
            first = isinstance(ref, Field) and ref.at is At.NTH and ref.nth == 1
            plain = first or ref.variable not in self.partition.kleenes
            if ref.variable in open_ and not (plain and ref.variable in binding):
                return False
        return True


def _bound(prefix: Taken) -> Binding:
    binding: Binding = {}
    for variable, event in prefix:
        binding[variable] = (*binding.get(variable, ()), event)
    return binding


def rest_of(pattern: Pattern, prefix: Taken) -> Pattern:
    """What may still come after these events."""
    for variable, _ in prefix:
        rest = advance(pattern, variable)
        assert rest is not None
        pattern = rest
    return pattern
