"""Make runs in the format of `permalign train` from given models, without training."""

from tests.models import small

from permalign import Transducer
from permalign.options.run import RunOptions
from permalign.text.vocabulary import Vocabulary
from permalign.training.run_directory import RunDirectory


def write_own(path, examples):
    rows = [f"{' '.join(example.source)}\t{' '.join(example.target)}\n" for example in examples]
    path.write_text("source\ttarget\n" + "".join(rows), encoding="utf-8")


def make_run(folder, model, task, **options):
    """Write a run of a model; the task is given by its name and options."""
    directory = RunDirectory(folder)
    directory.create(RunOptions.parse({"task": task, "training": {"max_steps": 1}, **options}))
    model.save_pretrained(directory.model)
    return directory


def trained(steps, examples, reorderer="soft", head="ssnt", seed=0):
    model = small.make(reorderer, head, seed=seed)
    small.train(model, examples, steps=steps)
    return model


def model_for(examples, **head):
    """An untrained model with the words of the examples."""
    source, target = (
        Vocabulary(sorted({token for example in examples for token in getattr(example, side)}))
        for side in ("source", "target")
    )
    small_head = {"embedding_dim": 8, "hidden_size": 8, "encoder": {"hidden_size": 8}, **head}
    return Transducer({"head": small_head}, source, target)


def aligned(folder):
    """Write a translation task in two files, with punctuation that a tokeniser would split off."""
    words = ["it", "'s", "3.5", "(", "don", "'t", ")", "彼", "。", "left-handed", ",", "."]
    lines = [
        " ".join(words[(3 * line + position) % len(words)] for position in range(4 + line % 5))
        for line in range(40)
    ]
    for name in ("a", "b"):
        (folder / f"text.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {"name": "aligned", "source_file": str(folder / "text.a"), "target_file": str(folder / "text.b")}
