"""What may fill the holes of a template: parameters, rules, and the points that the rules allow."""

from evo.space.parameters import AUTO, Filling, Indices, Parameter, where
from evo.space.rules import Occupancy, ResourceModels, Rule, auto_rules, hardware_rules, rule, smem_text
from evo.space.sieve import MOST_POINTS
from evo.space.space import FeasibleSet, Space

__all__ = [
    "AUTO",
    "MOST_POINTS",
    "FeasibleSet",
    "Filling",
    "Indices",
    "Occupancy",
    "Parameter",
    "ResourceModels",
    "Rule",
    "Space",
    "auto_rules",
    "hardware_rules",
    "rule",
    "smem_text",
    "where",
]
