"""When the verifier spoke of a sequence, when its round was taken up, and until when entries are in time."""

from __future__ import annotations

_BRIEF_NS = 2_000_000  # of rounds as short as this nothing can be foretold


class RoundClock:
    """The times of one sequence's round, all by the scheduler's clock."""

    def __init__(self, now_ns: int) -> None:
        self.opened_ns = now_ns
        self.touched_ns = now_ns  # when the verifier last spoke of the sequence
        self.taken_ns: int | None = None  # when the round was taken up
        self.deadline_ns = 0
        self._allowed_ns = 0  # from a commit's arrival until its entries must go out to be there in time

    def begin_round(self, now_ns: int) -> None:
        """The verifier spoke of the sequence."""
        self.touched_ns, self.taken_ns = now_ns, None

    def allow(self, now_ns: int, allowed_ns: int) -> None:
        """Entries that go out within `allowed_ns` are in time."""
        self._allowed_ns, self.deadline_ns = allowed_ns, now_ns + allowed_ns

    def begin_verification(self, now_ns: int) -> None:
        """The verification that was waited for begins when what goes out now arrives: its guesses are new work."""
        self.taken_ns, self.deadline_ns = now_ns, now_ns + self._allowed_ns

    def take_up(self, now_ns: int) -> None:
        """Work on the round begins, if it had not."""
        self.taken_ns = self.taken_ns or now_ns

    def spent_ns(self, now_ns: int) -> tuple[int, int]:
        """Since the round was taken up, and before that since the verifier spoke."""
        taken_ns = self.taken_ns if self.taken_ns is not None else now_ns
        return now_ns - taken_ns, taken_ns - self.touched_ns

    def held_until_ns(self, now_ns: int, next_step_ns: int) -> int:
        """Until when a session whose guesses are all begun should rest; not after `now_ns` if it should not.

        Where the next step of its trees would end too late for the verification under way, the outcome is awaited
        instead: a step that is at work then only delays what is drafted for it. The outcome may itself be late.
        """
        if self._allowed_ns < _BRIEF_NS or now_ns + next_step_ns <= self.deadline_ns:
            return now_ns
        return self.deadline_ns + self._allowed_ns // 2
