"""Rewrites of a query that keep its matches, in the order they are applied."""

from ensue.plan.query_rules.derive_window import derive_window
from ensue.plan.query_rules.flatten import flatten
from ensue.plan.query_rules.partition_by_equality import partition_by_equality
from ensue.plan.query_rules.split_negations import split_negations
from ensue.plan.query_rules.unwrap_aggregates import unwrap_aggregates

RULES = (flatten, split_negations, unwrap_aggregates, partition_by_equality)
BY_SCHEMA = (derive_window,)  # these ask which columns hold the time; they come last
