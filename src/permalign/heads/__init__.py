"""What turns (reordered) source states into an output."""

from permalign.heads.additive import additive_word_log_probs

__all__ = ["additive_word_log_probs"]
