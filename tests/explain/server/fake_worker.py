"""A worker process without models: what it is to do is the sentence of a request."""

import sys
from textwrap import dedent

# It starts at once, because it leaves out what the packages above its modules import.
PROGRAM = """
import json, os, sys, time, types
import permalign
for name in ("explain", "explain/server"):
    package = types.ModuleType("permalign." + name.replace("/", "."))
    package.__path__ = [os.path.join(permalign.__path__[0], name)]
    sys.modules[package.__name__] = package
from permalign.explain.server.worker_messages import Answer
from permalign.explain.server.worker_process import answer_jobs, limit_memory, read_lines
{answer}
lines = read_lines()
lines.get()  # the settings
answer_jobs(lines, answer)
"""


def command(answer: str) -> list[str]:
    """Return the command of a process that answers jobs by a function ``answer(job)``, given as its source."""
    return [sys.executable, "-c", PROGRAM.format(answer=dedent(answer))]


COMMAND = command("""
    def answer(job):
        limit_memory(2**28)
        word, *numbers = job.request["sentence"].split()
        if word == "sleep":
            time.sleep(float(numbers[0]))
        if word == "die":
            os._exit(1)
        if word == "fail":
            {}["secret detail"]
        if word == "allocate":
            bytearray(2**30)
        if word == "print":
            print("noise")
        return Answer(200, "application/json", json.dumps({"process": os.getpid()}).encode())
""")
