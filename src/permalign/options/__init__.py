"""Every option of a model and of a training run: its type, default, range and meaning."""
