from dataclasses import replace

import pytest

from permalign.errors import ConfigError, DataError, UsageError
from permalign.models.build_model import load_model
from permalign.options.run import RunOptions
from permalign.tasks.base import Example
from permalign.tasks.data_profile import profile_data
from permalign.training.experiments import experiment_names, load_experiment
from permalign.training.recipe_trials import MIN_DEV_EXAMPLES
from permalign.training.recipes import (
    MAX_EXACT_LENGTH,
    MAX_REORDERED_LENGTH,
    RECIPES,
    choose_recipe,
    fit_to_data,
    load_candidates,
    load_experiment_values,
    load_recipe,
    load_recipe_values,
    other_recipes,
    suggest_recipe,
)
from permalign.training.setup import prepare
from permalign.training.tokenization import choose_tokens


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("source\ttarget\n" + "".join(f"a b {i % 7}\tB A {i % 7}\n" for i in range(40)))
    return path


def pairs_of(source, target, count=20):
    return [(source.split(), target.split())] * count


@pytest.mark.parametrize(
    ("pairs", "recipe"),
    [
        (pairs_of("a b c", "A B C"), "tagging"),
        (pairs_of("a b c", "A B"), "exact"),
        (pairs_of(" ".join(f"w{i}" for i in range(30)), " ".join(f"w{i}" for i in range(29))), "ssnt"),
        (pairs_of("a " * 100, "b " * 101), "ssnt"),
    ],
)
def test_the_recipe_depends_on_the_data(pairs, recipe):
    assert choose_recipe(profile_data(pairs)).recipe == recipe


@pytest.mark.parametrize("part", ["head", "reorderer"])
def test_a_pretrained_model_reads_words(part, tmp_path):
    path = tmp_path / "dates.tsv"
    path.write_text(
        "source\ttarget\n" + "".join(f"day {i} of {1900 + i}\t{1900 + i}-{i}\n" for i in range(40))
    )
    task, setting = {"name": "own", "path": str(path)}, f"model.{part}.pretrained=some/model"
    options, _ = load_recipe("exact", task, [setting])
    assert options.text.source.is_plain
    assert options.text.target.pre_tokenizer != "none"
    values, _ = load_experiment_values("geoquery/exact", task, [setting])
    assert "pre_tokenizer" not in values["text"].get("source", {})


def test_word_order_is_measured():
    words = [f"w{i}" for i in range(30)]
    keep = [(words[i : i + 25], words[i : i + 24]) for i in range(6)]
    swap = [(source, target[::-1]) for source, target in keep]
    shift = [(words[i : i + 3], [word.upper() for word in reversed(words[i : i + 3])]) for i in range(25)]
    assert profile_data(swap).monotone == 0
    assert profile_data(keep).monotone == 1
    assert profile_data(shift).monotone == 0
    assert choose_recipe(profile_data(swap)).recipe == "hard"


@pytest.mark.parametrize(("length", "recipe"), [(MAX_EXACT_LENGTH, "exact"), (MAX_EXACT_LENGTH + 1, "ssnt")])
def test_all_orders_are_summed_over_up_to_a_length(length, recipe):
    words = [f"w{i}" for i in range(length)]
    assert choose_recipe(profile_data([(words, words[1:])] * 20)).recipe == recipe


@pytest.mark.parametrize(
    ("length", "recipe"), [(MAX_REORDERED_LENGTH, "hard"), (MAX_REORDERED_LENGTH + 1, "seq2seq")]
)
def test_characters_are_reordered_up_to_a_length(length, recipe):
    profile = replace(profile_data(pairs_of("a b", "A")), source_length=length, target_length=5, monotone=0.0)
    choice = choose_recipe(profile, characters=True)
    assert choice.recipe == recipe
    assert ("characters" in choice.reason) == (length == MAX_REORDERED_LENGTH)


def test_other_recipes_are_those_that_would_not_take_too_long():
    short = profile_data(pairs_of("a b", "A"))
    assert other_recipes("exact", short) == ("hard", "ssnt")
    assert other_recipes("hard", short, characters=True) == ("ssnt",)
    long = replace(short, source_length=MAX_REORDERED_LENGTH + 1)
    assert other_recipes("seq2seq", long) == ("ssnt",)


@pytest.mark.parametrize(("recipe", "other"), [("hard", "seq2seq"), ("ssnt", "hard"), ("exact", "hard")])
def test_another_recipe_is_suggested(pairs, recipe, other):
    options, _ = load_recipe(recipe, {"name": "own", "path": str(pairs)})
    assert f"--recipe {other}," in suggest_recipe(options, 50.0)


@pytest.mark.parametrize(("growth", "length"), [(0.5, 2), (2.5, 3), (20.0, 8)])
def test_segments_are_as_long_as_targets_grow(growth, length):
    profile = replace(profile_data(pairs_of("a b", "A")), growth=growth)
    assert fit_to_data("exact", profile)["model"]["head"]["max_segment_length"] == length


@pytest.mark.parametrize(
    ("num_dev", "setting", "are_tried"),
    [
        (MIN_DEV_EXAMPLES, "training.max_epochs=5", ["exact"]),
        (MIN_DEV_EXAMPLES, "model.head.embedding_dim=8", ["exact", "hard", "ssnt"]),
        (MIN_DEV_EXAMPLES - 1, "model.head.embedding_dim=8", ["exact"]),
        (MIN_DEV_EXAMPLES, "model.head.kind=segments", ["exact"]),
    ],
)
def test_recipes_are_tried_if_dev_can_compare_them_and_settings_leave_the_choice(
    tmp_path, num_dev, setting, are_tried
):
    for split, size in {"train": 40, "dev": num_dev}.items():
        (tmp_path / f"{split}.tsv").write_text("".join(f"a b {i % 7}\t{i % 7} A\n" for i in range(size)))
    candidates, _ = load_candidates("auto", {"name": "own", "path": str(tmp_path)}, [setting])
    assert list(candidates) == are_tried


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_can_be_trained_on_a_file(pairs, recipe):
    options, lines = load_recipe(recipe, {"name": "own", "path": str(pairs)}, ["training.max_steps=3"])
    setup = prepare(options)
    assert setup.total_steps(options, 1) == 3
    assert setup.skipped == 0
    assert any(line.startswith("end: after 3 steps, or ") for line in lines)


@pytest.mark.parametrize(
    ("recipe", "settings", "restarts"),
    [
        ("exact", [], 3),
        ("labelled", ["model.head.embedding_dim=8"], 3),
        ("ssnt", [], 1),
        ("exact", ["training.restarts=1"], 1),
        ("exact", ["training.restarts=2", "training.restart_steps=7"], 2),
        ("exact", ["training.max_steps=20"], 1),
    ],
)
def test_recipes_that_sum_over_all_orders_try_several_seeds(pairs, recipe, settings, restarts):
    task = {"name": "own", "path": str(pairs)}
    options, lines = load_recipe(recipe, task, settings)
    assert options.training.restarts == restarts
    assert any(line.startswith("seeds: 3 are tried for 100 steps") for line in lines) == (restarts == 3)
    values, lines = load_recipe_values(recipe, task, restarts=False)
    assert RunOptions.parse(values).training.restarts == 1
    assert not any(line.startswith("seeds") for line in lines)


@pytest.mark.parametrize("recipe", ["exact", "hard", "seq2seq"])
def test_every_recipe_can_read_sentences_with_a_pretrained_model(pairs, recipe):
    settings = ["model.head.pretrained=name", "text.source.pretrained_words=true"]
    if recipe != "seq2seq":
        settings.append("model.reorderer.shared_embeddings=true")
    options, _ = load_recipe(recipe, {"name": "own", "path": str(pairs)}, settings)
    assert options.text.source.pretrained_words
    assert options.model.head.pretrained == "name"


def test_the_choice_is_explained_and_settings_have_the_last_word(pairs):
    options, lines = load_recipe("auto", {"name": "own", "path": str(pairs)}, ["model.head.embedding_dim=8"])
    assert options.model.head.kind == "tagging"
    assert options.model.head.embedding_dim == 8
    assert lines[0].startswith("data: 32 training examples")
    assert lines[1].startswith("recipe: tagging, because every target has as many tokens")


def test_the_copy_mechanism_is_mentioned_where_outputs_repeat_words(pairs, tmp_path):
    def is_mentioned(path, *settings):
        _, lines = load_recipe("exact", {"name": "own", "path": str(path)}, settings)
        return any("model.head.copy_mechanism=true" in line for line in lines)

    other = tmp_path / "other.tsv"
    other.write_text(pairs.read_text().replace("B A ", "B A n"))
    assert is_mentioned(pairs)
    assert not is_mentioned(pairs, "model.head.copy_mechanism=true")
    assert not is_mentioned(pairs, "text.target.kind=characters")
    assert not is_mentioned(other)


@pytest.fixture
def years(tmp_path):
    """Dates of few years, each of which occurs often."""
    path = tmp_path / "years.tsv"
    rows = [
        f"{day} {month} {1950 + 3 * year}\t{1950 + 3 * year} - {month.upper()} - {day:02}\n"
        for day in range(1, 8)
        for month in ("may", "june")
        for year in range(12)
    ]
    path.write_text("".join(rows))
    return {"name": "own", "path": str(path)}


@pytest.mark.parametrize("recipe", ["auto", "ssnt", "seq2seq"])
def test_words_that_targets_always_repeat_are_copied_so_that_unseen_ones_can_be_written(years, recipe):
    options, lines = load_recipe(recipe, years)
    assert options.model.head.copy_mechanism
    (line,) = (line for line in lines if line.startswith("copies: "))
    assert "because 12 different words of sources, in 100% of the examples, are nearly always" in line
    assert not any(line.startswith("hint") for line in lines)


@pytest.mark.parametrize(
    "setting",
    [
        "model.head.copy_mechanism=false",
        "model.head.kind=syntactic_attention",
        "model={head: {kind: syntactic_attention}}",
        "text.target.kind=characters",
    ],
)
def test_settings_have_the_last_word_on_copying(years, setting):
    options, lines = load_recipe("ssnt", years, [setting])
    assert not options.model.head.copy_mechanism
    assert not any(line.startswith("copies") for line in lines)
    prepare(options)


def test_settings_that_do_not_fit_are_errors_where_words_are_copied(years):
    with pytest.raises(ConfigError, match="did you mean 'ssnt'"):
        load_recipe("auto", years, ["model.head.kind=ssntt"])
    with pytest.raises(ConfigError, match="model"):
        load_recipe("auto", years, ["model=3"])


@pytest.mark.parametrize(
    ("rows", "copied"),
    [
        (
            [(f"add {i % 10} to x", f"x + {i % 10}") for i in range(50)],
            1,
        ),  # single digits: there are no others
        ([(f"w{i % 20} !", f"w{(i + 1) % 20} w{i % 20 if i % 2 else 'x'} !") for i in range(60)], 10),
        ([(f"w{i % 20} c", f"w{i % 20 if i % 3 else 'x'}") for i in range(60)], 0),  # in two of three targets
        ([("a", "a")], 1),
    ],
)
def test_copied_words_are_counted(rows, copied):
    assert profile_data([(source.split(), target.split()) for source, target in rows]).copied_words == copied


def examples_of(*pairs):
    return [Example(tuple(source.split()), tuple(target.split()), source) for source, target in pairs]


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([(f"day {i % 9}", f"DAY {i % 9}") for i in range(40)], {}),
        (
            [(f"{i % 9} may {i % 8}", f"{i % 8}-05-{i % 9}") for i in range(72)],
            {"pre_tokenizer": "punctuation"},
        ),
        ([(f"{i} may", f"05-{i}") for i in range(100, 300)], {"pre_tokenizer": "digits"}),
        ([(f"w{chr(97 + i % 26)}{chr(97 + i // 26)}k", f"{i}") for i in range(200)], {"kind": "characters"}),
        (
            [(f"{i} {'long text ' * 9}", f"{chr(300 + i)} {'long text ' * 9}") for i in range(50)],
            {"kind": "subwords"},
        ),
    ],
)
def test_tokens_are_as_coarse_as_can_be_learned(pairs, text):
    choice = choose_tokens(examples_of(*pairs))
    assert choice.text.get("target", {}) == choice.text.get("source", {}) == text
    assert (choice.reason is None) == (not text)


def test_without_sentencepiece_rare_words_of_long_texts_are_left_out(monkeypatch):
    monkeypatch.setattr("permalign.training.tokenization.find_spec", lambda name: None)
    rest = "long text " * 9
    pairs = [(f"{i} {rest}", f"{chr(300 + i)} {rest}") for i in range(50)]
    choice = choose_tokens(examples_of(*pairs))
    assert choice.text.get("target", {}) == choice.text.get("source", {}) == {"min_frequency": 2}
    assert "pip install sentencepiece" in choice.reason


@pytest.mark.parametrize(
    ("setting", "source", "target"),
    [
        ("text.source.lowercase=true", ("words", "punctuation", True), ("words", "punctuation", False)),
        ("text.source.kind=characters", ("characters", "none", False), ("words", "punctuation", False)),
        ("text.target.pre_tokenizer=digits", ("words", "punctuation", False), ("words", "digits", False)),
    ],
)
def test_tokens_are_chosen_where_no_setting_says_what_they_are(setting, source, target, tmp_path):
    rows = "".join(f"{i % 9} may {i % 8}\t{i % 8}-05-{i % 9}\n" for i in range(72))
    (tmp_path / "dates.tsv").write_text(rows)
    options, _ = load_recipe("auto", {"name": "own", "path": str(tmp_path / "dates.tsv")}, [setting])
    for side, expected in ((options.text.source, source), (options.text.target, target)):
        assert (side.kind, side.pre_tokenizer, side.lowercase) == expected


def test_tokens_that_were_chosen_are_saved_with_the_model_and_put_together_again(tmp_path):
    rows = "".join(f"{i % 9} may {i % 8}\t{i % 8}-05-{i % 9}\n" for i in range(72))
    (tmp_path / "dates.tsv").write_text(rows)
    options, lines = load_recipe("auto", {"name": "own", "path": str(tmp_path / "dates.tsv")})
    assert lines[0].startswith("tokens: words split at punctuation, because 100% of the training targets")
    model = prepare(options).model
    model.save_pretrained(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert model.source.tokenize(["3.", "may"]) == ["3", ".", "may"]
    assert model.target.decode(model.target.encode(["7-05-3"])) == ("7-05-3",)
    prediction = model.predict(["3 june 5"], explain=True)[0]
    assert prediction.unknown == ("june",)
    assert "￭" not in prediction.text


@pytest.mark.parametrize(("examples", "steps"), [(10, 100), (8000, 150), (1_000_000, 2000)])
def test_a_run_is_evaluated_once_per_epoch_and_at_least_twenty_times(examples, steps):
    profile = replace(profile_data(pairs_of("a b", "A", count=1)), examples=examples)
    assert fit_to_data("ssnt", profile)["training"]["evaluate_every"] == steps


@pytest.mark.parametrize("examples", [1, 100, 5000, 1_000_000])
def test_every_run_ends(examples):
    profile = profile_data(pairs_of("a b", "A", count=1))
    training = fit_to_data("exact", type(profile)(**{**_fields(profile), "examples": examples}))["training"]
    updates = training["max_epochs"] * -(-examples // training["batch_size"])
    assert 2000 < updates < 50_000
    assert 15 <= updates / training["evaluate_every"] <= 200
    assert training["patience"]
    assert training["max_cpu_minutes"]


def test_the_end_of_a_run_is_announced(pairs):
    task = {"name": "own", "path": str(pairs)}
    _, lines = load_recipe("ssnt", task)
    assert lines[-1] == (
        "end: after 1,500 epochs, or 30 CPU minutes, or 10 evaluations without improvement, whichever comes first "
        "(--set training.max_epochs=N changes it)."
    )
    _, lines = load_recipe("ssnt", task, ["training.max_cpu_minutes=null", "training.patience=null"])
    assert lines[-1].startswith("end: after 1,500 epochs, whichever")


def _fields(profile):
    return {name: getattr(profile, name) for name in profile.__slots__}


def test_wrong_recipes_files_and_settings_are_errors(pairs, tmp_path):
    task = {"name": "own", "path": str(pairs)}
    with pytest.raises(UsageError, match="did you mean 'exact'"):
        load_recipe("exat", task)
    with pytest.raises(DataError, match="there is no such file"):
        load_recipe("auto", {**task, "path": str(tmp_path / "nothing.tsv")})
    with pytest.raises(ConfigError, match=r"unknown option training\.max_stepz"):
        load_recipe("auto", task, ["training.max_stepz=3"])


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_can_be_pointed_at_other_data(pairs, name):
    options = load_experiment(name, ["task.path=" + str(pairs), "task.name=own"])
    assert options.task == {"name": "own", "path": str(pairs)}
    assert (options.train, options.dev) == ("iid/train", "iid/dev")
    assert not options.text.source.link_entities


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("geoquery/soft", [], ("punctuation", "punctuation")),
        ("words.yaml", [], ("punctuation", "none")),
        ("geoquery/soft", ["text.source.pre_tokenizer=digits"], ("digits", "punctuation")),
        ("geoquery/soft", ["text.source.kind=words", "text.target.kind=words"], ("none", "none")),
        ("en-ja/soft", [], ("punctuation", "punctuation")),
    ],
)
def test_tokens_of_other_data_are_chosen_unless_the_experiment_or_a_setting_says_what_they_are(
    name, settings, expected, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i % 9} may {i % 8}\t{i % 8}-05-{i % 9}\n" for i in range(72))
    (tmp_path / "dates.tsv").write_text(rows)
    (tmp_path / "words.yaml").write_text("extends: geoquery/soft\ntext: {target: {kind: words}}\n")
    values, lines = load_experiment_values(name, {"name": "own", "path": "dates.tsv"}, settings)
    options = RunOptions.parse(values)
    assert (options.text.source.pre_tokenizer, options.text.target.pre_tokenizer) == expected
    assert [line.partition(",")[0] for line in lines] == (
        ["tokens: words split at punctuation"] if "punctuation" in expected else []
    )
    unchanged = load_experiment(name)
    assert options.model == unchanged.model
    assert options.text.source.min_frequency == unchanged.text.source.min_frequency


def test_other_data_may_have_its_own_splits(pairs):
    options = load_experiment("scan/soft", ["task.name=own", f"task.path={pairs}", "dev=len/dev"])
    assert (options.train, options.dev) == ("iid/train", "len/dev")
    assert load_experiment("scan/soft", ["task.seed=3"]).train == "len/train"
