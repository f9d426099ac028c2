"""GeoQuery: its corpus, its language FunQL, the typed grammar of its programs, and their execution."""

from permalign.tasks.geoquery.task import GeoQuery

__all__ = ["GeoQuery"]
