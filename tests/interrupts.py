"""Ctrl-C in tests that a background job runs: a shell lets it ignore SIGINT, and its child processes inherit that."""

import signal


def accept_interrupts():
    """Let SIGINT interrupt this process; pass the function as ``preexec_fn`` of a child process."""
    return signal.signal(signal.SIGINT, signal.default_int_handler)
