"""Why a commit is not taken, beside what breaks the contract."""

from __future__ import annotations


class StaleCommit(Exception):
    """A commit of a round that is over; it is dropped and counted."""


class UnknownRound(Exception):
    """A commit of a round that this session never saw begin; the sequence must be opened again."""


class Diverged(Exception):
    """The committed tokens are not those that the verifier has; the sequence must be opened again."""
