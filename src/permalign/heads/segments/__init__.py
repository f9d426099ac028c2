"""Segments whose tokens see their source cell and earlier output only, so that orders can be summed over exactly."""

from permalign.heads.segments.head import SegmentsHead

__all__ = ["SegmentsHead"]
