"""SWAN: every source cell writes one segment of the output, which an LSTM reads as it grows."""

from permalign.heads.swan.head import SwanHead

__all__ = ["SwanHead"]
