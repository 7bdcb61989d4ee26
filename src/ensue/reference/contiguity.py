"""Checks which events a match may skip, and where its loops end.

A run is a prefix of a match. It advances by the steps of the remaining pattern (its derivative),
and each step restricts the gap before its event.
"""

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ensue.analyzer.derivatives import (
    GuardScope,
    NegationGuard,
    PatternStep,
    collect_guards,
    continues_past_end,
    derive_all,
    derive_steps,
    find_open_loops,
    get_mandatory_steps,
    is_excluded_by_end,
    is_step_preferred,
    remove_loop_bounds,
)
from ensue.ir import traversal
from ensue.ir.expression import EventPosition, Expr, FieldRef
from ensue.ir.pattern import LoopExit, Pattern
from ensue.ir.selection import CONTIGUOUS, Strategy, get_amount
from ensue.ir.traits import is_optional
from ensue.reference.arrangements import is_arranged, list_bindings
from ensue.reference.conditions import INDEXED_POSITIONS, Binding, Event, holds, is_before, members
from ensue.schema import accepts_type

if TYPE_CHECKING:
    from ensue.reference.partition import NegationScope, Partition

RunEvents = list[tuple[str, Event]]


class ReferenceRuns:
    """Computes the runs of a query over the events of one key."""

    def __init__(self, partition: "Partition") -> None:
        self.partition = partition
        self.query = partition.query
        pattern = self.query.pattern
        self.mixed = any(traversal.iterate_strategies(pattern))
        self.has_loop_policy = bool({*traversal.iterate_loop_exits(pattern)} - {LoopExit.FORK})
        loops = traversal.iterate_loops(pattern)
        self.loop_negations = {n for loop in loops for n in traversal.iterate_negations(loop)}
        self.guarded = bool(self.loop_negations) or any(traversal.iterate_untils(pattern))
        self._open_variables: dict[tuple[str, ...], set[str]] = {}  # by the variables bound so far

    def allows(self, binding: Binding, *, whole: bool = False) -> bool:
        """Whether the strategy allows all skipped events, and the loops may end here.

        `whole`: the match is complete.
        """
        strategy, chain = self.query.strategy, pairwise(members(binding))
        if self.mixed or strategy is Strategy.NEXT:
            return self._has_run(binding, whole)
        if strategy in CONTIGUOUS and not all(self._adjacent(strategy, a, b) for a, b in chain):
            return False
        return not (self.has_loop_policy or self.guarded) or self._has_run(binding, whole)

    def _has_run(self, binding: Binding, whole: bool) -> bool:
        """Whether a run could take exactly these events; each derivative is a separate run."""
        events = ((v, e) for v, es in binding.items() for e in es if not e.made_of)
        events_taken = sorted(events, key=lambda step: step[1].position)
        runs = self.runs(events_taken, ended=whole)
        return any(self._is_complete(run, events_taken) for run in runs) if whole else bool(runs)

    def runs(self, taken: RunEvents, *, ended: bool = False) -> list[Pattern]:
        """Returns the derivatives of the pattern after these events.

        `ended`: no more events follow, which fixes the window of a negation at the start.
        """
        runs = [self.query.pattern]
        for k, (variable, event) in enumerate(taken):
            derivatives = (
                step.rest
                for run in runs
                for step in self._steps(run, taken[:k], event)
                if step.variable == variable and (k or not ended or not self._starts_after_negation(step, taken))
            )
            runs = list(dict.fromkeys(derivatives))
        return runs

    def _is_complete(self, run: Pattern, taken: RunEvents) -> bool:
        """Whether a run may be a match: no part is missing, and no greedy loop continues."""
        return (
            is_optional(run)
            and all(
                self._is_allowed(guard, taken, None)
                for guard in collect_guards(run)
                if guard.where is GuardScope.NEXT or guard.negation in self.loop_negations
            )
            and not (self.has_loop_policy and self._continues_greedily(run, taken))
        )

    def _continues_greedily(self, run: Pattern, taken: RunEvents) -> bool:
        """Whether a greedy loop at the end takes a later event."""
        return any(
            continues_past_end(step, run) and self._can_take(taken, step, event)
            for event in self._after(taken[-1][1])
            for step in self._steps(run, taken, event)
        )

    def _starts_after_negation(self, step: PatternStep, taken: RunEvents) -> bool:
        """Whether a negation at the start of a group forbids an event before the match.

        As outside of groups, it looks back over the window that ends at the last event.
        """
        first, events = taken[0][1], [event for _, event in taken]
        return any(
            all(is_before(event, first) for event in members(negative))
            and self.partition.near_end(members(negative), events)
            and all(holds(c, negative) for c in self.partition.conditions_on(guard.negation))
            for guard in self._guards(step)
            if guard.where is GuardScope.BETWEEN
            for negative in list_bindings(guard.negation.part, self.partition)
        )

    # ------------------------------------------------------------------------ one event

    def _steps(self, run: Pattern, prefix: RunEvents, event: Event) -> list[PatternStep]:
        """Returns the steps of a run with an event, after greedy and reluctant preferences."""
        allowed = self._list_allowed_steps(run, prefix, event)
        if not self.has_loop_policy:
            return allowed
        allowed = [s for s in allowed if not self._ends_first(run, prefix, s)]
        gap = [*self._between(prefix, event), event] if prefix else [event]
        return [s for s in allowed if not any(self._is_barred(s, run, prefix, e) for e in gap)]

    def _is_barred(self, step: PatternStep, run: Pattern, prefix: RunEvents, event: Event) -> bool:
        """Whether a loop prefers another step with a skipped or taken event."""
        rivals = [s for s in derive_steps(run) if is_step_preferred(s, step)]
        allowed = self._list_allowed_steps(run, prefix, event) if rivals else []
        rivals = [s for s in rivals if s in allowed and not self._ends_first(run, prefix, s)]
        return any(self._can_take(prefix, s, event) for s in rivals)

    def _list_allowed_steps(self, run: Pattern, prefix: RunEvents, event: Event) -> list[PatternStep]:
        """Returns the steps that the gap before the event allows."""
        candidates = [
            s
            for s in derive_steps(run)
            if self._near(s, prefix, event) and all(self._is_allowed(guard, prefix, event) for guard in self._guards(s))
        ]
        if not prefix:
            return candidates
        gap = self._between(prefix, event)
        usable: bool | None = None  # whether the run could take one of them
        allowed = []
        for step in candidates:
            match step.how or self.query.strategy:
                case Strategy.ANY:
                    allowed.append(step)
                case Strategy.NEXT if step.how is None:
                    if usable is None:
                        usable = any(self._usable(run, prefix, e) for e in gap)
                    if not usable:
                        allowed.append(step)
                case Strategy.NEXT:  # it restricts only its own event
                    if not any(self._can_take(prefix, step, e) for e in gap):
                        allowed.append(step)
                case Strategy.STRICT | Strategy.PARTITION as how:
                    if self._adjacent(how, prefix[-1][1], event):
                        allowed.append(step)
        return allowed

    def _between(self, prefix: RunEvents, event: Event) -> list[Event]:
        last = prefix[-1][1].position
        return [e for e in self.partition.events if last < e.position < event.position]

    def _after(self, last: Event) -> list[Event]:
        return [e for e in self.partition.events if e.position > last.position]

    def _adjacent(self, how: Strategy, left: Event, right: Event) -> bool:
        """Whether two events are adjacent in the stream or in the partition."""
        if how is Strategy.STRICT:
            return right.position - left.position == 1
        index = self.partition.index
        return index[right.position] - index[left.position] == 1

    def _near(self, step: PatternStep, prefix: RunEvents, event: Event) -> bool:
        """Whether the time since the previous event is within the step's limit."""
        return not prefix or step.pause is None or event.start - prefix[-1][1].end <= get_amount(step.pause)

    # ---------------------------------------------------------------------------- waiting

    def can_wait(self, run: Pattern, prefix: RunEvents, step: PatternStep) -> bool:
        """Whether a step is still possible when the window ends.

        Without a strategy of the step, an event that advanced the run ends its wait.
        """
        gap = [e for e in self._after(prefix[-1][1]) if self.partition.near(bind([*prefix, ("", e)]))]
        if step.how is None and any(self._can_take(prefix, s, e) for e in gap for s in self._steps(run, prefix, e)):
            return False
        gap = [e for e in gap if self._near(step, prefix, e)]
        match step.how or self.query.strategy:
            case Strategy.STRICT:
                return False  # the next event takes the step or ends the run
            case Strategy.PARTITION if gap:
                return False
            case Strategy.NEXT if any(self._can_take(prefix, step, e) for e in gap):
                return False
            case _:
                pass
        return (
            not any(self._is_violated(guard, prefix, gap) for guard in step.guards)
            and not self._ends_first(run, prefix, step)
            and not (self.has_loop_policy and any(self._is_barred(step, run, prefix, e) for e in gap))
        )

    def _is_violated(self, guard: NegationGuard, prefix: RunEvents, gap: list[Event]) -> bool:
        """Whether a guard forbids one of these events, whatever the run takes next."""
        binding, positions = bind(prefix), {e.position for e in gap}
        conditions = self.partition.conditions_on(guard.negation)
        return any(
            all(e.position in positions for e in members(negative))
            and self._forbids(guard.where, members(negative), prefix, None)
            and all(holds(c, binding | negative) for c in conditions)
            for negative in list_bindings(guard.negation.part, self.partition)
        )

    # ----------------------------------------------------------------------------- guards

    def _guards(self, step: PatternStep) -> Iterator[NegationGuard]:
        """Yields the guards of a step; other negations are checked by their position."""
        for guard in step.guards:
            if guard.where is not GuardScope.BETWEEN or guard.negation in self.loop_negations:
                yield guard

    def _is_allowed(self, guard: NegationGuard, prefix: RunEvents, event: Event | None) -> bool:
        """Whether a guard allows a run to take an event, or to end here (None).

        Its conditions are evaluated with the events before that one.
        """
        binding, conditions = bind(prefix), self.partition.conditions_on(guard.negation)
        return not any(
            self._forbids(guard.where, members(negative), prefix, event)
            and all(holds(c, binding | negative) for c in conditions)
            for negative in list_bindings(guard.negation.part, self.partition)
        )

    def _forbids(self, where: GuardScope, events: list[Event], prefix: RunEvents, event: Event | None) -> bool:
        """Whether events are in the range that a guard forbids."""
        taken = event is not None and [e.position for e in events] == [event.position]
        if where is GuardScope.TAKEN:
            return taken
        if not prefix:
            return where is GuardScope.UP_TO and taken
        last = prefix[-1][1]
        if where is GuardScope.NEXT:
            (first,) = events
            reached = event is not None or self.partition.near({**bind(prefix), "": (first,)})
            return reached and self._adjacent(Strategy.PARTITION, last, first)
        between = all(is_before(last, e) and (event is None or e.position < event.position) for e in events) and (
            event is not None or self.partition.near({**bind(prefix), "": (*events,)})
        )
        return between or (where is GuardScope.UP_TO and taken)

    # ---------------------------------------------------------- skip till next match

    def _usable(self, run: Pattern, prefix: RunEvents, event: Event) -> bool:
        """Whether a run with this prefix must take this event."""
        reachable = [s for s in derive_steps(run) if self._reaches(s, prefix, event)]
        # a loop that needs the very next event ends once that is skipped
        continuing = {loop for step in reachable for loop in step.inside}
        closes = self.mixed or self.guarded  # a loop may end before it is left
        open_ = [loop for loop in find_open_loops(run) if not closes or loop in continuing]
        reachable = [s for s in reachable if not self._ends_first(run, prefix, s)]
        mandatory = get_mandatory_steps(reachable, open_)
        return any(self._can_take(prefix, step, event) for step in mandatory)

    def _reaches(self, step: PatternStep, prefix: RunEvents, event: Event) -> bool:
        """Whether a step is possible with an event this late."""
        if not prefix:
            return True
        how = step.how or self.query.strategy
        return (
            (how not in CONTIGUOUS or self._adjacent(how, prefix[-1][1], event))
            and self._near(step, prefix, event)
            and all(self._is_allowed(guard, prefix, event) for guard in self._guards(step))
        )

    def _ends_first(self, run: Pattern, prefix: RunEvents, step: PatternStep) -> bool:
        """Whether a run is already a match, and a reluctant loop takes no more."""
        if not is_optional(run) or not is_excluded_by_end(step, run):
            return False
        return all(holds(condition, bind(prefix)) for condition in self.partition.positive)

    def _can_take(self, prefix: RunEvents, step: PatternStep, event: Event) -> bool:
        return self.can_begin([*prefix, (step.variable, event)])

    def can_begin(self, prefix: RunEvents) -> bool:
        """Whether these events may begin a match, by the conditions decided so far."""
        binding = bind(prefix)
        partition, pattern = self.partition, self.query.pattern
        open_ = self._open(tuple(v for v, _ in prefix))
        types = {a.variable: a.type for a in traversal.iterate_positive_atoms(pattern)}
        decided = [c for c in partition.positive if self.is_decided(c, binding, open_)]

        def is_closed(scope: "NegationScope") -> bool:
            negated = {a.variable for a in traversal.iterate_atoms(scope.negation)}
            bounded = bool(scope.after and scope.before) and not scope.whole
            return bounded and all(
                self.is_decided(condition, binding, open_, negated)
                for condition in partition.conditions_on(scope.negation)
            )

        return (
            all(accepts_type(types[v], e.type) for v, e in prefix)
            and is_arranged(pattern, binding)
            and partition.near(binding)
            and all(holds(c, binding) for c in decided)
            and not any(is_closed(s) and partition.occurs(s, binding) for s in partition.scopes(binding))
        )

    def _open(self, taken: tuple[str, ...]) -> set[str]:
        """Returns the variables that may still get events; a loop is open until it is left."""
        if taken not in self._open_variables:
            rests = derive_all(remove_loop_bounds(self.query.pattern), taken)
            atoms = (atom for rest in rests for atom in traversal.iterate_positive_atoms(rest))
            self._open_variables[taken] = {atom.variable for atom in atoms}
        return self._open_variables[taken]

    def is_decided(self, condition: Expr, binding: Binding, open_: set[str], negated: Collection[str] = ()) -> bool:
        """Whether later events cannot change the value of a condition."""
        for ref in traversal.iterate_references(condition):
            if ref.variable in negated or ref.at in INDEXED_POSITIONS:
                continue
            first = isinstance(ref, FieldRef) and ref.at is EventPosition.NTH and ref.nth == 1
            plain = first or ref.variable not in self.partition.kleenes
            if ref.variable in open_ and not (plain and ref.variable in binding):
                return False
        return True


def bind(prefix: RunEvents) -> Binding:
    """Groups the events of a run by variable."""
    binding: Binding = {}
    for variable, event in prefix:
        binding[variable] = (*binding.get(variable, ()), event)
    return binding
