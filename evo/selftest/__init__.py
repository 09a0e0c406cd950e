"""Tests of the gate, of the pruning and of the machine. No search passes through here."""
