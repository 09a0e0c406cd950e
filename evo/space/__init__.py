"""What may fill the holes of a template: parameters, rules, and the points that the rules allow."""

from evo.space.narrowing import Narrowing
from evo.space.parameters import Filling, Indices, Parameter, where
from evo.space.rules import ResourceModels, Rule, hardware_rules, rule, smem_text
from evo.space.space import MOST_ENUMERATED, FeasibleSet, Space

__all__ = [
    "MOST_ENUMERATED",
    "FeasibleSet",
    "Filling",
    "Indices",
    "Narrowing",
    "Parameter",
    "ResourceModels",
    "Rule",
    "Space",
    "hardware_rules",
    "rule",
    "smem_text",
    "where",
]
