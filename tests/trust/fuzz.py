"""Coverage-guided fuzzing of one reader, in a process of its own: libFuzzer ends the process that it runs in.

``python -m tests.trust.fuzz READER SECONDS FOLDER`` changes small files again and again, and keeps those that reach new
code. It stops at the first error that is no refusal, at a file that takes ten seconds, or at three gigabytes of memory.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SEEDS = [
    b"task: {name: arithmetic}\ntraining: {max_steps: 3}\n",
    b"model.head.kind=ssnt",
    b"a b\tc\nd\te f\n",
    b'"a, b",c\nd,"e"\n',
    b'["<pad>", "<unk>", "<s>", "</s>", "a"]',
    b'{"id": "1", "source": ["a"], "target": ["b"], "output": ["b"], "score": -1.0, "correct": true}\n',
    b'{"step": 20, "kind": "dev", "exact_match": 50.0, "seconds": 1.5}\n',
    b'{"format": "permalign model", "version": 2, "kind": "Transducer", "options": {"head": {"kind": "ssnt"}}}',
    b'{"format": "permalign checksums", "sha256": {"config.json": "00"}}',
    b"answer(state(loc_2(stateid('texas'))))",
    b"house\tHaus\tHauses\n",
    b"id:0\nnl:which states ?\nmrl:answer(state(all))\nproductions:\n*n:Query -> ({ answer ( *n:State ) })\n\n",
    b"nl:utah\n*n:StateName -> ({ ' utah ' })\n",
    b"border('utah','ut',['nevada','idaho']).\n",
    b'{"format": "permalign entity vocabulary", "version": 1, "content": {"words": ["a"], "entities": {"a": "b"}}}',
    b'{"progress": {"step": 3, "kept": [[3, 50.0]]}, "sampler": {}, "conditions": {}}',
    b"1\teng\tHello.\t2\tcmn\t\xe4\xbd\xa0\xe5\xa5\xbd\xe3\x80\x82\n",
    b"f ( a , g ( b ) )",
    b"largest exclude state next_to_2 stateid_ENTITY",
    b"and jump twice walk",
    b"((1+2)*3)",
    b'@\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}          \0\0\0\0',
]
"""Small files that the readers read."""

LIMITS = ["-timeout=10", "-rss_limit_mb=3000", "-max_len=4000"]


def fuzz(reader: str, seconds: float) -> tuple[int, str]:
    """Fuzz a reader; returns how many files it read, and what is wrong, or nothing."""
    command = [sys.executable, "-m", "tests.trust.fuzz", reader, str(max(1, round(seconds)))]
    with tempfile.TemporaryDirectory() as folder:  # which libFuzzer would not remove
        done = subprocess.run(
            [*command, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    files = re.search(r"number_of_executed_units: *(\d+)", done.stdout)
    if done.returncode == 0 and files:
        return int(files[1]), ""
    lines = [line for line in done.stdout.splitlines() if re.search(r"Error|ERROR|[Tt]imeout", line)]
    return int(files[1]) if files else 0, f"{reader}: {' | '.join(lines)[:500] or done.stdout[-500:]}"


def main(reader: str, seconds: str, name: str) -> None:
    """Fuzz a reader in this process, which then ends; all files are written to the folder of the given name."""
    import atheris

    with atheris.instrument_imports(include=["permalign"], enable_loader_override=False):
        from tests.trust.hostile_files import SCRAPS, read_hostile

    folder = Path(name)
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, content in enumerate([*SEEDS, *SCRAPS]):
        (corpus / str(number)).write_bytes(content)

    def read(content: bytes) -> None:
        message = read_hostile(reader, content, folder)
        if len(message) >= 5_000:
            raise RuntimeError(f"a message of {len(message)} characters")

    limits = [*LIMITS, f"-max_total_time={seconds}", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", "-verbosity=0", str(corpus)], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
