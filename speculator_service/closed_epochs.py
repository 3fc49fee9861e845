"""Which openings of sequences a verifier has ended, so that what arrives of them late opens nothing again."""

from __future__ import annotations

from collections import OrderedDict

_MOST_SEQUENCES = 4096  # messages are out of order within a few frames at most


class ClosedEpochs:
    """The last epoch that was closed of each sequence; those closed longest ago are forgotten."""

    def __init__(self) -> None:
        self._epochs: OrderedDict[int, int] = OrderedDict()

    def add(self, sequence_id: int, epoch: int) -> None:
        """This epoch of the sequence, and all before it, are over."""
        self._epochs[sequence_id] = max(epoch, self._epochs.pop(sequence_id, epoch))
        if len(self._epochs) > _MOST_SEQUENCES:
            self._epochs.popitem(last=False)

    def has(self, sequence_id: int, epoch: int) -> bool:
        """Whether this epoch of the sequence is over."""
        closed = self._epochs.get(sequence_id)
        return closed is not None and epoch <= closed
