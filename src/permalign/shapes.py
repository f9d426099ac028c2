"""Shapes in type annotations: ``Float[Tensor, "batch position token"]``.

They come from jaxtyping if it is installed, and tests check every call against them. Users do not need jaxtyping.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["Bool", "Float", "Int"]

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Plain:
            """Takes the place of jaxtyping's types: ``Float[Tensor, "batch"]`` is then just ``Tensor``."""

            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = _Plain
