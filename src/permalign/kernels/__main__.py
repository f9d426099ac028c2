"""``python -m permalign.kernels``: compile all kernels now, and keep them on disk."""

from permalign.kernels import warm_up

if __name__ == "__main__":
    warm_up()
