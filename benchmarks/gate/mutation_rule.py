"""A rule says why a kind of survivors of mutation testing is no other kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """Regular expressions, searched for in the survivor's fields of these names."""

    equal: str
    why: str
    kind: str = ""
    before: str = ""
    text: str = ""
    after: str = ""
    template: str = ""

    def fits(self, survivor: Mapping[str, Any]) -> bool:
        """Whether it covers this survivor."""
        fields = ("kind", "before", "text", "after", "template")
        return all(re.search(getattr(self, name), survivor[name]) for name in fields)
