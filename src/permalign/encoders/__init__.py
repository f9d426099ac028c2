"""States of words in context."""
