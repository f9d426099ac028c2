"""Pictures in notebooks, for objects that must not depend on the code that draws them."""

from importlib import import_module


class ShownInNotebooks:
    """Gives an object a picture in notebooks.

    The module that draws is imported when a notebook asks for the picture: derivations belong to the core of the
    package, which must not depend on `permalign.explain`, and nobody who looks at no picture has to wait for it.
    """

    def _repr_html_(self) -> str:
        drawn: str = import_module("permalign.explain.render.notebook").as_html(self)
        return drawn
