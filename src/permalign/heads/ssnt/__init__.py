"""SSNT: monotone alignment of source cells and output tokens."""

from permalign.heads.ssnt.head import SsntHead

__all__ = ["SsntHead"]
