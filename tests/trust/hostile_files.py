"""What readers are given by a fuzzer: texts and bytes that look a little like what they expect."""

import json
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from permalign.decoding.glossary import Glossary
from permalign.errors import PermalignError
from permalign.evaluation.prediction_files import read_predictions
from permalign.explain.server.stored_predictions import read_stored
from permalign.files import read_checksums
from permalign.models.saving import read_kind
from permalign.options.run import RunOptions
from permalign.reproduction.records import RunStore
from permalign.tasks.aligned_files import read_aligned
from permalign.tasks.expressions import read_infix
from permalign.tasks.file_readers import read_table, read_text
from permalign.tasks.geoquery.corpus import read_corpus
from permalign.tasks.geoquery.funql import read_funql
from permalign.tasks.geoquery.geobase import read_geobase
from permalign.tasks.geoquery.name_list import read_name_list
from permalign.tasks.geoquery.signatures import program_grammar as geoquery_grammar
from permalign.tasks.program import read_bracketed
from permalign.tasks.record_files import read_records
from permalign.tasks.scan_language import program_grammar as scan_grammar
from permalign.tasks.tatoeba import read_tatoeba
from permalign.tensor_files import read_shapes, read_tensors
from permalign.text.entities import EntityVocabulary
from permalign.text.subwords import Subwords
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.vocabulary import Vocabulary
from permalign.training.experiments import load_experiment
from permalign.training.run_summary import read_curves, read_facts, summarise
from permalign.training.state import read_progress
from permalign.yaml_files import parse_yaml

REFUSED = (PermalignError, ValueError)
"""What a reader may raise; the command line shows both as one line."""

SCRAPS = [
    b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\x1b[2J", b"\r\n", b"\n", b"\t", b" ", b"{", b"}", b"[",
    b"]", b"(", b")", b",", b":", b'"', b"'", b"&a ", b"*a ", b"!!python/object/apply:os.system ", b"<<: ", b"---\n",
    b"!!bool ", b"!!int ", b"!!float ", b"!!map ", b"!!seq ", b"text: ",
    b"- ", b"? ", b"1e999", b"-0", b"9" * 400, b"NaN", b"null", b"model", b"training", b"task", b"seed", b"extends",
    b"../../../etc/passwd", b"/dev/zero", b"source", b"target", b"output", b"id", b"correct", b"score", b"tokens",
    b"answer(", b"state(", b"stateid('", b"exclude ", b"state ", b"jump ", b"twice ", b"+", b"*", b"__metadata__",
    b"data_offsets", b"shape", b"dtype", b"F32",
    b"step", b"kind", b"dev", b"format", b"permalign model", b"version", b"options", b"members", b"plugins", b"sha256",
    b"\x08\0\0\0\0\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\x7f",
]  # fmt: skip

contents = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(st.sampled_from(SCRAPS), st.binary(max_size=4)), max_size=60).map(b"".join),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
    st.tuples(st.sampled_from(SCRAPS), st.integers(1, 20_000)).map(lambda pair: pair[0] * pair[1]),
)


def text_of(path: Path) -> str:
    """The file as text, in which bad bytes are surrogates, as Python reads arguments and names of files."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def named(path: Path, name: str) -> Path:
    """The same content under another name, in a folder of its own, as readers of folders expect it."""
    folder = path.parent / f"folder of {name}"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(path.read_bytes())
    return folder / name


def read_metrics(path: Path) -> object:
    """Whatever is told about a run by its metrics."""
    folder = named(path, "metrics.jsonl").parent
    return summarise(folder), read_curves(folder)


READERS: dict[str, Callable[[Path], object]] = {
    "YAML": lambda path: parse_yaml(text_of(path)),
    "configs": lambda path: load_experiment(str(path)),
    "options": lambda path: RunOptions.parse(parse_yaml(text_of(path))),
    "settings": lambda path: load_experiment("arithmetic/soft", [text_of(path)]),
    "text files": lambda path: list(read_text(path).lines),
    "tables": lambda path: read_table(path),
    "JSON lines": lambda path: read_records(named(path, "corpus.jsonl")),
    "metrics": read_metrics,
    "facts": lambda path: read_facts(named(path, "environment.json").parent),
    "model configs": lambda path: read_kind(str(named(path, "config.json").parent), {}),
    "checksums": lambda path: read_checksums(named(path, "checksums.json").parent),
    "vocabularies": lambda path: Vocabulary.load(path),
    "vocabularies with entities": lambda path: EntityVocabulary.load(path),
    "subwords": lambda path: Subwords.load(path),
    "tokenized vocabularies": lambda path: TokenizedVocabulary.load(path),
    "predictions": lambda path: read_predictions(path),
    "stored predictions": lambda path: read_stored(path),
    "states": lambda path: read_progress(named(path, "state.json").parent),
    "records of runs": lambda path: RunStore(path).read(),
    "glossaries": lambda path: Glossary.read(path),
    "aligned files": lambda path: read_aligned(path, path),
    "corpora of GeoQuery": lambda path: read_corpus(path),
    "Geobase": lambda path: read_geobase(path),
    "lists of names": lambda path: read_name_list(path),
    "Tatoeba": lambda path: read_tatoeba(path),
    "safetensors": lambda path: (read_shapes(path), read_tensors(path)),
    "FunQL": lambda path: read_funql(text_of(path)),
    "programs": lambda path: read_bracketed(text_of(path).split()),
    "arithmetic": lambda path: read_infix(text_of(path)),
    "GeoQuery": lambda path: geoquery_grammar().read(text_of(path).split()),
    "SCAN": lambda path: scan_grammar().read(text_of(path).split()),
}


def read_hostile(reader: str, content: bytes, folder: Path) -> str:
    """Let a reader read a file; returns why it refuses to, or nothing. Any other error is a fault."""
    path = folder / "hostile.yaml"
    path.write_bytes(content)
    try:
        READERS[reader](path)
    except REFUSED as error:
        return str(error) or "an error that says nothing" * 1000
    return ""
