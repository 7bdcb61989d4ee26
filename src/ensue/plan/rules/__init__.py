"""Rewrites of a query that keep its matches, in the order they are applied."""

from ensue.plan.rules.flatten import flatten
from ensue.plan.rules.partition_by_equality import partition_by_equality
from ensue.plan.rules.split_negations import split_negations
from ensue.plan.rules.unwrap_aggregates import unwrap_aggregates

RULES = (flatten, split_negations, unwrap_aggregates, partition_by_equality)
