"""Show objects as pictures in notebooks."""

from importlib import import_module


class ShownInNotebooks:
    """The base class of objects that notebooks show as pictures.

    The module that draws pictures is imported only when a notebook asks for one, because derivations belong to the core
    of the package, which must not depend on `permalign.explain`, and because the import takes time.
    """

    def _repr_html_(self) -> str:
        drawn: str = import_module("permalign.explain.render.notebook").as_html(self)
        return drawn
