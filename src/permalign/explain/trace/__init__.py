"""The content of explanations: traces as plain data (`trace`), and how they are computed from a model."""
