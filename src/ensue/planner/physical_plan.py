"""Physical plan of a query: the roles that the scan marks, and the store of partial matches."""

from dataclasses import dataclass
from enum import Enum

from ensue.analyzer.derivatives import GuardScope
from ensue.ir.expression import Expr
from ensue.ir.pattern import Kleene, MaxGap
from ensue.ir.query import Query
from ensue.ir.selection import CONTIGUOUS, Strategy
from ensue.planner.hierarchy_modules import HierarchyModule
from ensue.planner.join_operators import JoinOperator
from ensue.planner.statistics import ASSUMED, PlanDecision, Statistics
from ensue.schema import Types


@dataclass(frozen=True, slots=True)
class Role:
    """A variable with the conditions that read only its event.

    The scan turns roles into bits of a mask, for whole batches at once.
    """

    variable: str
    type: Types
    conditions: tuple[Expr, ...] = ()  # on every event of the variable
    first: tuple[Expr, ...] = ()  # on a Kleene variable's first event only
    kleene: Kleene | None = None
    negative: bool = False
    inner: "PhysicalPlan | None" = None  # of a nested pattern, whose matches fill the role
    lapse: bool = False  # negated in an explicit interval: checked on complete matches


@dataclass(frozen=True, slots=True)
class ConditionCheck:
    """A condition on several events, evaluated as soon as all of them are bound.

    `each`: for every event that the Kleene variable `moving` has bound already, instead of for
    the current event.
    """

    condition: Expr
    moving: str | None = None
    each: bool = False


@dataclass(frozen=True, slots=True)
class NegationCheck:
    """A negation: no event of `variable` after those of `after` and before those of `before`."""

    variable: str
    after: tuple[str, ...]  # bound variables before it; empty: a negation at the start
    before: tuple[str, ...]  # bound variables after it; empty: a negation at the end
    conditions: tuple[Expr, ...] = ()  # that compare it with other variables
    whole: bool = False  # in AND: after the first event of all of them and before the last
    own: tuple[str, ...] = ()  # variables whose events match the type but do not count
    newest: bool = False  # only the newest one before the next event matters: no search
    way: str = ""  # how it is evaluated and why, for explain


@dataclass(frozen=True, slots=True)
class EdgeStop:
    """An event of `variable` closes an edge for the runs that wait at its source."""

    variable: str
    conditions: tuple[Expr, ...]  # that compare it with the events of a run
    where: GuardScope


@dataclass(frozen=True, slots=True)
class NfaEdge:
    """An event of `variable` moves a run from one state to another."""

    source: int
    target: int
    variable: str
    first: bool  # the variable had no event before
    checks: tuple[ConditionCheck, ...] = ()
    absences: tuple[NegationCheck, ...] = ()
    leaves: tuple[str, ...] = ()  # Kleene variables that close: their minimum count is checked
    # only in automata with `loops`:
    how: Strategy | None = None  # which events a run may have skipped
    own: bool = False  # for NEXT: only events that could have taken this edge count
    demanded: bool = True  # under skip-till-next-match a run takes it and does not also wait
    required_late: bool = True  # like `demanded`, once the open loop can no longer continue
    closes: bool = False  # it continues such a loop
    # blocked if this event, or a skipped one, could take the run along one of these:
    longer: tuple[str, ...] = ()  # they continue a greedy loop that this edge ends
    sooner: tuple[str, ...] = ()  # they end a reluctant loop that this edge continues
    pause: MaxGap | None = None  # the largest distance from the run's last event
    stops: tuple[EdgeStop, ...] = ()


@dataclass(frozen=True, slots=True)
class NfaState:
    """The variables that a run has bound, and those that may take more events."""

    number: int
    bound: frozenset[str]
    open: frozenset[str]  # Kleene variables that have events and may take more
    accepting: bool = False
    checks: tuple[ConditionCheck, ...] = ()  # only decided when the match ends here
    absences: tuple[NegationCheck, ...] = ()  # likewise
    pending: tuple[NegationCheck, ...] = ()  # negations at the end: decided when the window closes
    barred: tuple[str, ...] = ()  # negated variables whose events discard the runs here
    lasting: tuple[str, ...] = ()  # a match ends here only if it cannot continue with these


@dataclass(frozen=True, slots=True)
class Nfa:
    """An NFA; its states are numbered so that edges lead backwards in `loops` only."""

    states: tuple[NfaState, ...]  # states[0] is the start state and holds no runs
    edges: tuple[NfaEdge, ...]
    loops: bool = False  # it repeats groups, or its edges say more than the strategy does

    @property
    def dropped(self) -> frozenset[str]:
        """Negated variables whose events are not stored."""
        stops = {stop.variable for edge in self.edges for stop in edge.stops}
        looked_up = {absence.variable for state in self.states for absence in state.absences}
        return frozenset(v for state in self.states for v in state.barred) | (stops - looked_up)

    def list_outgoing(self, state: int) -> tuple[NfaEdge, ...]:
        return tuple(e for e in self.edges if e.source == state)

    def contiguous(self, state: int, strategy: Strategy) -> Strategy | None:
        """The strategy of a state whose runs wait for the next event only, or None."""
        if not self.loops:
            return strategy if strategy in CONTIGUOUS else None
        hows = {edge.how for edge in self.list_outgoing(state)}
        if not hows or not hows <= CONTIGUOUS:
            return None
        return Strategy.PARTITION if Strategy.PARTITION in hows else Strategy.STRICT

    def is_ended_by_next_event(self, state: NfaState) -> bool:
        """Whether the next event of the partition ends a greedy loop that it cannot continue."""
        continuing = [e.how for e in self.list_outgoing(state.number) if e.variable in state.lasting]
        single = self.contiguous(state.number, Strategy.ANY) is Strategy.PARTITION
        return bool(continuing) and (single or set(continuing) == {Strategy.PARTITION})


@dataclass(frozen=True, slots=True)
class InstanceStacks:
    """SASE's active instance stacks, one per variable; matches are built from the last event."""

    variables: tuple[str, ...]
    checks: tuple[tuple[ConditionCheck, ...], ...]  # by the variable bound when they are evaluated
    absences: tuple[tuple[NegationCheck, ...], ...]  # likewise
    # PNCEP: negative states. Such an event empties the stack of this variable and is dropped
    pushed: tuple[tuple[NegationCheck, ...], ...] = ()
    counted: bool = False  # sequences are counted before the negations filter them, to measure

    @property
    def dropped(self) -> frozenset[str]:
        """Negated variables whose events are not stored."""
        return frozenset(a.variable for group in self.pushed for a in group)


class CompactOutput(Enum):
    """The output of a compact structure."""

    MATCHES = "the matches of each last event, or the first of them"
    COUNT = "how many matches each event completes"
    EXISTS = "whether an event completes a match"


@dataclass(frozen=True, slots=True)
class CompactStep:
    """An event of `variable` moves all partial matches of one state to another at once."""

    source: int
    target: int
    variable: str
    first: bool  # the variable had no event before


@dataclass(frozen=True, slots=True)
class CompactPlan:
    """Partial matches that share a state share their storage, as the same events can follow them.

    States are numbered so that steps never lead backwards; 0 is the start. A match is complete
    when a step leads to an accepting state.
    """

    states: int
    steps: tuple[CompactStep, ...]
    accepting: frozenset[int]
    answer: CompactOutput
    resets: tuple[tuple[str, int], ...] = ()  # a negated event discards the matches of a state
    limit: int | None = None  # matches listed for each last event

    def list_outgoing(self, state: int) -> tuple[CompactStep, ...]:
        return tuple(s for s in self.steps if s.source == state)

    @property
    def kept(self) -> tuple[int, ...]:
        """States that hold partial matches, the start first."""
        return tuple(n for n in range(self.states) if n == 0 or self.list_outgoing(n))


@dataclass(frozen=True, slots=True)
class LeafNode:
    """Events of a variable, or the lists of a Kleene variable's events."""

    variable: str

    @property
    def children(self) -> tuple["TreeNode", ...]:
        return ()


@dataclass(frozen=True, slots=True)
class JoinNode:
    """Combines the results of two nodes where the operator's Q and the conditions hold."""

    operator: JoinOperator
    left: "TreeNode"
    right: "TreeNode"
    checks: tuple[ConditionCheck, ...] = ()  # in evaluation order
    absences: tuple[NegationCheck, ...] = ()
    variable: str | None = None  # the name by which conditions read the operator's attributes

    @property
    def children(self) -> tuple["TreeNode", ...]:
        return self.left, self.right


@dataclass(frozen=True, slots=True)
class ApplyNode:
    """Filters and transforms the results of one node by an operator."""

    operator: JoinOperator
    part: "TreeNode"
    checks: tuple[ConditionCheck, ...] = ()
    absences: tuple[NegationCheck, ...] = ()
    variable: str | None = None

    @property
    def children(self) -> tuple["TreeNode", ...]:
        return (self.part,)


TreeNode = LeafNode | JoinNode | ApplyNode


@dataclass(frozen=True, slots=True)
class JoinTree:
    """A join tree: events enter at the leaves, matches leave at the root."""

    root: TreeNode
    modules: tuple[HierarchyModule, ...] = ()  # of a hierarchy: an EH-tree
    parked: bool = False  # a complex event begins only while a precursor waits


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    """The reference semantics: exact and slow, for queries that no kernel supports."""

    reason: str


Structure = Nfa | InstanceStacks | JoinTree | CompactPlan | ReferencePlan


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """All decisions made before the first event arrives."""

    query: Query  # rewritten by the rules
    structure: Structure
    roles: tuple[Role, ...] = ()
    residual: tuple[Expr, ...] = ()  # evaluated on complete matches, vectorised
    prune: bool = True  # the window is pushed into the scan
    whole_stream: bool = False  # the result depends on events of every partition
    notes: tuple[str, ...] = ()  # applied and disabled rules, for explain
    statistics: Statistics = ASSUMED  # the input of the decisions
    decisions: tuple[PlanDecision, ...] = ()
    interpreted: bool = False  # the kernel runs as Python: it calls code that cannot be compiled

    @property
    def is_count_only(self) -> bool:
        """Whether matches are only counted, and never listed."""
        structure = self.structure
        return isinstance(structure, CompactPlan) and structure.answer is not CompactOutput.MATCHES

    @property
    def joins_at_last_event(self) -> bool:
        """Whether events are only combined when one arrives that may end a match."""
        return not isinstance(self.structure, Nfa)

    def role(self, variable: str) -> Role:
        return next(r for r in self.roles if r.variable == variable)
