"""What heads that write a segment for every source cell share."""

from torch import Tensor


def require_room(lengths: Tensor, target_lengths: Tensor, longest: int) -> None:
    """Every output fits into one segment of at most so many words for each source word."""
    too_long = target_lengths > lengths * longest
    if bool(too_long.any()):
        row = int(too_long.nonzero()[0])
        words, cells = int(target_lengths[row]), int(lengths[row])
        raise ValueError(
            f"target_lengths[{row}] is {words} words, but {cells} source words with segments of at most L = "
            f"{longest} write {cells * longest} at most. Build the head with "
            f"max_segment_length={-(-words // cells)} or more, or leave the pair out."
        )
