"""What notebooks show of our objects, without those having to know how pictures are made."""

from importlib import import_module


class ShownInNotebooks:
    """Gives an object a picture in notebooks.

    Like the names of the package itself, the module that draws is found when it is asked for: trees are made in the
    core, which must not depend on what explains them, and nobody who looks at no picture waits for it.
    """

    def _repr_html_(self) -> str:
        drawn: str = import_module("permalign.explain.render.notebook").as_html(self)
        return drawn
