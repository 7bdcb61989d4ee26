"""The plan of a query: what the scan marks, and the structure that holds partial matches."""

from dataclasses import dataclass
from enum import Enum

from ensue.algebra.pattern import Kleene, Pause
from ensue.algebra.policy import CONTIGUOUS, Strategy
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Query
from ensue.algebra.residual import Where
from ensue.plan.estimates.decisions import Decision
from ensue.plan.estimates.statistics import ASSUMED, Statistics
from ensue.plan.physical_rules.operators import Operator
from ensue.plan.towers.modules import Module
from ensue.schema import Types


@dataclass(frozen=True, slots=True)
class Role:
    """A part an event can play: a variable, with the tests that need this event alone.

    The scan turns roles into bits of a mask, for whole batches at once.
    """

    variable: str
    type: Types
    conditions: tuple[Expr, ...] = ()  # of every event of the variable
    first: tuple[Expr, ...] = ()  # of a Kleene variable's first event only
    kleene: Kleene | None = None
    negative: bool = False
    inner: "Plan | None" = None  # of a complex event: its matches play the role
    lapse: bool = False  # negated in an interval: judged on finished matches


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on several events, tried at the first moment it can be.

    `each`: for every event that the Kleene variable `moving` holds already, instead of for the
    event that has just come.
    """

    condition: Expr
    moving: str | None = None
    each: bool = False


@dataclass(frozen=True, slots=True)
class Absence:
    """A negation: no event of `variable` after those of `after` and before those of `before`."""

    variable: str
    after: tuple[str, ...]  # bound variables in front of it; none: a negation at the start
    before: tuple[str, ...]  # bound variables behind it; none: a negation at the end
    conditions: tuple[Expr, ...] = ()  # that tie it to other variables
    whole: bool = False  # in AND: after the first event of all of them and before the last
    own: tuple[str, ...] = ()  # variables whose events could be met and do not count
    newest: bool = False  # only the newest one before the event behind it matters: no search
    way: str = ""  # how it is judged and why so, for explain


@dataclass(frozen=True, slots=True)
class Stop:
    """An event of `variable` closes an edge to the runs that wait before it."""

    variable: str
    conditions: tuple[Expr, ...]  # that tie it to what a run has
    where: Where


@dataclass(frozen=True, slots=True)
class Edge:
    """An event for `variable` takes a run from one state to another."""

    source: int
    target: int
    variable: str
    first: bool  # the variable had no event before
    checks: tuple[Check, ...] = ()
    absences: tuple[Absence, ...] = ()
    leaves: tuple[str, ...] = ()  # Kleene variables that close: they need their least number
    # of automata with `loops`:
    how: Strategy | None = None  # what a run may have passed over
    own: bool = False  # of NEXT: only what could have taken this very edge counts
    demanded: bool = True  # under skip-till-next-match a run takes it and does not also wait on
    demanded_late: bool = True  # as `demanded`, when the loop that is open may no longer go on
    closes: bool = False  # it goes on with such a loop
    # not if this event, or one that was passed over, could take the run along one of these:
    longer: tuple[str, ...] = ()  # they go on with a greedy loop that it ends
    sooner: tuple[str, ...] = ()  # they end a reluctant loop that it goes on with
    pause: Pause | None = None  # how long the run's last event may be ago
    stops: tuple[Stop, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """What a run has and what it still may take."""

    number: int
    bound: frozenset[str]
    open: frozenset[str]  # Kleene variables that have events and may take more
    accepting: bool = False
    checks: tuple[Check, ...] = ()  # only decided when the match ends here
    absences: tuple[Absence, ...] = ()  # likewise
    pending: tuple[Absence, ...] = ()  # negations at the end: decided when the window closes
    barred: tuple[str, ...] = ()  # negated variables whose events end the runs here
    lasting: tuple[str, ...] = ()  # a match that ends here is one if it cannot go on with these


@dataclass(frozen=True, slots=True)
class Automaton:
    """Runs move along edges; states are numbered so that they lead backwards in `loops` only."""

    states: tuple[State, ...]  # states[0] is the start: it holds no runs
    edges: tuple[Edge, ...]
    loops: bool = False  # it repeats groups, or its edges say more than the strategy does

    @property
    def dropped(self) -> frozenset[str]:
        """The negated variables whose events are not kept."""
        stops = {stop.variable for edge in self.edges for stop in edge.stops}
        looked_up = {absence.variable for state in self.states for absence in state.absences}
        return frozenset(v for state in self.states for v in state.barred) | (stops - looked_up)

    def out_of(self, state: int) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.source == state)

    def contiguous(self, state: int, strategy: Strategy) -> Strategy | None:
        """The strategy of a state whose runs wait for the very next event only, if it is one."""
        if not self.loops:
            return strategy if strategy in CONTIGUOUS else None
        hows = {edge.how for edge in self.out_of(state)}
        if not hows or not hows <= CONTIGUOUS:
            return None
        return Strategy.PARTITION if Strategy.PARTITION in hows else Strategy.STRICT

    def ended_by_neighbours(self, state: State) -> bool:
        """Whether the next event of the partition ends a greedy loop that it cannot go on with."""
        going = [e.how for e in self.out_of(state.number) if e.variable in state.lasting]
        alone = self.contiguous(state.number, Strategy.ANY) is Strategy.PARTITION
        return bool(going) and (alone or set(going) == {Strategy.PARTITION})


@dataclass(frozen=True, slots=True)
class Stacks:
    """SASE's active instance stacks: one a variable; matches are built backwards from the last."""

    variables: tuple[str, ...]
    checks: tuple[tuple[Check, ...], ...]  # by the variable that is bound when they are tried
    absences: tuple[tuple[Absence, ...], ...]  # likewise
    # PNCEP: negative states. Each such event empties the stack of this variable and is dropped
    pushed: tuple[tuple[Absence, ...], ...] = ()
    counted: bool = False  # sequences are counted before negations judge them, to measure

    @property
    def dropped(self) -> frozenset[str]:
        """The negated variables whose events are not kept."""
        return frozenset(a.variable for group in self.pushed for a in group)


class Answer(Enum):
    """What a compact structure is asked for."""

    MATCHES = "the matches of each last event, or the first of them"
    COUNT = "how many matches each event completes"
    EXISTS = "whether an event completes a match"


@dataclass(frozen=True, slots=True)
class Step:
    """An event for `variable` takes all partial matches of one state to another at once."""

    source: int
    target: int
    variable: str
    first: bool  # the variable had no event before


@dataclass(frozen=True, slots=True)
class Compact:
    """Partial matches of a state held together, however many: what may follow them is the same.

    States are numbered so that steps never lead backwards; 0 is the start. A match is complete
    when a step leads to an accepting state.
    """

    states: int
    steps: tuple[Step, ...]
    accepting: frozenset[int]
    answer: Answer
    resets: tuple[tuple[str, int], ...] = ()  # a negated event ends all that wait in a state
    limit: int | None = None  # so many matches of each last event are listed

    def into(self, state: int) -> tuple[Step, ...]:
        return tuple(s for s in self.steps if s.target == state)

    def out_of(self, state: int) -> tuple[Step, ...]:
        return tuple(s for s in self.steps if s.source == state)

    @property
    def kept(self) -> tuple[int, ...]:
        """The states that partial matches wait in, the start first."""
        return tuple(n for n in range(self.states) if n == 0 or self.out_of(n))


@dataclass(frozen=True, slots=True)
class Leaf:
    """The events of a variable, or the chains of a Kleene variable's events."""

    variable: str


@dataclass(frozen=True, slots=True)
class Join:
    """Results of two nodes put together by an operator, where its Q and the conditions hold."""

    operator: Operator
    left: "Node"
    right: "Node"
    checks: tuple[Check, ...] = ()  # in the order they are tried
    absences: tuple[Absence, ...] = ()
    variable: str | None = None  # by which conditions name the operator's attributes


@dataclass(frozen=True, slots=True)
class Apply:
    """Results of one node that pass an operator."""

    operator: Operator
    part: "Node"
    checks: tuple[Check, ...] = ()
    absences: tuple[Absence, ...] = ()
    variable: str | None = None


Node = Leaf | Join | Apply


@dataclass(frozen=True, slots=True)
class Tree:
    """A join tree: events enter at the leaves, matches leave at the root."""

    root: Node
    modules: tuple[Module, ...] = ()  # of a hierarchy: an EH-Tree
    parked: bool = False  # a box begins only while a precursor waits


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference semantics itself: exact and slow, for what no kernel takes yet."""

    reason: str


Structure = Automaton | Stacks | Tree | Compact | Reference


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is decided before the first event comes."""

    query: Query  # rewritten by the rules
    structure: Structure
    roles: tuple[Role, ...] = ()
    residual: tuple[Expr, ...] = ()  # tried on finished matches, vectorised
    prune: bool = True  # the window is pushed into the scan
    whole_stream: bool = False  # the answer depends on events of every partition
    notes: tuple[str, ...] = ()  # what the rules did, for explain
    statistics: Statistics = ASSUMED  # what the decisions were made by
    decisions: tuple[Decision, ...] = ()
    interpreted: bool = False  # the kernel runs as Python: it calls what cannot be compiled

    @property
    def tallies(self) -> bool:
        """Whether matches are only counted, and never listed."""
        structure = self.structure
        return isinstance(structure, Compact) and structure.answer is not Answer.MATCHES

    @property
    def arranges_at_the_end(self) -> bool:
        """Whether events are only put together when one comes that may end a match."""
        return not isinstance(self.structure, Automaton)

    def role(self, variable: str) -> Role:
        return next(r for r in self.roles if r.variable == variable)
