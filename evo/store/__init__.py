"""Every trial in SQLite (or PostgreSQL): the one truth. Leaderboard and resume are queries."""

from evo.store.confirmations import Confirmation, Finalist
from evo.store.database import Store
from evo.store.records import Failure, LeaderboardRow, TrialRow

__all__ = ["Confirmation", "Failure", "Finalist", "LeaderboardRow", "Store", "TrialRow"]
