"""``python -m permalign.kernels`` compiles all kernels and keeps them on disk."""

from permalign.kernels import warm_up

if __name__ == "__main__":
    warm_up()
