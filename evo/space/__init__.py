"""What may fill the holes of a template: parameters, rules, and the points that the rules allow."""

from evo.space.parameters import Filling, Indices, Parameter, where
from evo.space.rules import Occupancy, ResourceModels, Rule, hardware_rules, rule, smem_text
from evo.space.sieve import MOST_POINTS
from evo.space.space import FeasibleSet, Space

__all__ = [
    "MOST_POINTS",
    "FeasibleSet",
    "Filling",
    "Indices",
    "Occupancy",
    "Parameter",
    "ResourceModels",
    "Rule",
    "Space",
    "hardware_rules",
    "rule",
    "smem_text",
    "where",
]
