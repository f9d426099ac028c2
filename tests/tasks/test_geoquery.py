import csv
import json
from collections import Counter

import pytest

from permalign.errors import DataError
from permalign.tasks.geoquery import GeoQuery
from permalign.tasks.geoquery.corpus import read_corpus
from permalign.tasks.geoquery.funql import mask, read_funql, template, unmask, write_funql
from permalign.tasks.geoquery.signatures import ANSWERS, program_grammar, rules
from permalign.tasks.geoquery.splits import CONDITIONS, PARTS, PUBLIC_CONDITIONS, TUNING, split_ids
from permalign.tasks.program import Program, bracketed
from permalign.text.entities import EntityVocabulary

SIZES = {"iid": (540, 60, 280), "temp": (544, 60, 276), "len": (653, 113, 114), "len_all": (593, 143, 144)}


@pytest.fixture(scope="module")
def expected(data_dir):
    with (data_dir / "geoquery/expected/geoquery.jsonl").open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@pytest.fixture(scope="module", params=["en", "de", "zh"])
def language(request):
    return request.param


@pytest.fixture(scope="module")
def task(data_dir):
    return GeoQuery(data_dir=data_dir)


def all_examples(task):
    return {int(e.id): e for part in PARTS for e in task.examples(f"iid/{part}")}


def test_every_field_of_the_corpus_is_the_expected_one(data_dir, language, expected):
    questions = read_corpus(data_dir / "geoquery" / f"geoFunql-{language}.corpus")
    assert len(questions) == len(expected) == 880
    for question, row in zip(questions, expected, strict=True):
        if language == "de" and question.id == 817:  # the German file has the other reading of this question
            row = row | {"funql": row["funql_alt"]}
            for field in ("program", "program_all", "template"):
                row[field] = row[field].replace("mountain", "place")
        assert question.id == row["id"]
        assert question.text == row[language]
        assert question.funql == row["funql"]
        assert " ".join(question.program) == row["program"]
        assert " ".join(question.program_all) == row["program_all"]
        assert ["".join(bracketed(entity)) for entity in question.entities] == row["entities"]
        assert question.template == row["template"]


def test_all_programs_round_trip_in_both_forms(expected):
    for row in expected:
        masked, entities = mask(read_funql(row["funql"]))
        for write_all, field in ((False, "program"), (True, "program_all")):
            grammar = program_grammar(write_all)
            assert grammar.linearize(masked) == row[field].split()
            assert grammar.read(row[field].split()) == masked
        assert write_funql(unmask(masked, entities)) == row["funql"]


def test_the_rules_are_those_of_the_corpus(data_dir):
    """The published table writes entities with their names, and ``largest_one`` with the measure inside."""
    with (data_dir / "geoquery/expected/productions.tsv").open() as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert len(rows) == 103
    published = {(r["function"], r["result_type"], tuple(r["arguments"].split())) for r in rows}
    ours = {("answer", "Query", (kind,)) for kind in ANSWERS}
    for function, result, arguments in rules():
        if function.endswith("_ENTITY"):
            name = function.removesuffix("_ENTITY")
            kinds = (
                [("CityName", "StateAbbrev"), ("CityName", "_")] if name == "cityid" else [(result + "Name",)]
            )
            ours |= {(name, result, kind) for kind in kinds}
        elif arguments and " of " in arguments[0]:
            ours.add((function, result, tuple(arguments[0].split(" of "))))
        elif function != "all" and " of " not in result:
            ours.add((function, result, tuple("all" if kind == "All" else kind for kind in arguments)))
    assert ours == published


def test_splits_are_the_expected_ones(task, expected):
    conditions = tuple(f"{condition}/{part}" for condition in CONDITIONS for part in PARTS)
    tuning = tuple(f"{condition}/{part}" for condition in TUNING for part in ("train", "dev"))
    assert task.splits == conditions + tuning
    for condition in SIZES:
        for part, size in zip(PARTS, SIZES[condition], strict=True):
            ids = [int(e.id) for e in task.examples(f"{condition}/{part}")]
            assert len(ids) == size
            assert ids == [row["id"] for row in expected if row[condition] == part]


def test_shipped_splits_follow_their_definitions(data_dir, task):
    examples = all_examples(task)
    upstream = (data_dir / "geoquery/split-880/test").read_text().split()
    assert split_ids()["iid/test"] == sorted(map(int, upstream))
    templates = {
        part: {examples[number].meta["template"] for number in split_ids()[f"temp/{part}"]} for part in PARTS
    }
    assert len(set.union(*templates.values())) == 320
    assert not templates["test"] & (templates["train"] | templates["dev"])
    for condition, write_all in (("len", False), ("len_all", True)):
        lengths = all_examples(GeoQuery(write_all=write_all, data_dir=data_dir))
        train = set(split_ids()[f"{condition}/train"])
        assert train == {number for number, e in lengths.items() if len(e.target) <= 4}


@pytest.mark.parametrize("condition", PUBLIC_CONDITIONS)
def test_public_splits_are_the_published_ones(condition, task, data_dir):
    name = condition.replace("_", "-") + ("-1" if condition.startswith("nqg") else "")
    published = json.loads((data_dir / f"geoquery/public-splits/{name}.json").read_text())
    ours = {part: split_ids()[f"{condition}/{part}"] for part in PARTS}
    assert ours["test"] == sorted(published["test"])
    assert sorted(ours["train"] + ours["dev"]) == sorted(published["train"] + published.get("dev", []))
    assert ours["dev"] == sorted(published["dev"]) if "dev" in published else len(ours["dev"]) == 44
    if "template" in condition:
        examples = all_examples(task)
        seen = {examples[number].meta["template"] for number in ours["train"]}
        assert not seen & {examples[number].meta["template"] for number in ours["test"]}


@pytest.mark.parametrize("condition", TUNING)
def test_templates_are_held_out_for_tuning(condition, task, data_dir):
    parts = {part: task.examples(f"{condition}/{part}") for part in ("train", "dev")}
    templates = {part: [e.meta["template"] for e in found] for part, found in parts.items()}
    assert not set(templates["train"]) & set(templates["dev"])
    assert 120 <= len(parts["dev"]) < 126
    assert max(Counter(templates["dev"]).values()) == 6
    seen = {*split_ids()["temp/train"], *split_ids()["temp/dev"]}  # nothing of the test set
    assert {int(e.id) for found in parts.values() for e in found} <= seen
    german = GeoQuery("de", data_dir=data_dir).examples(f"{condition}/dev")
    assert [e.id for e in german] == [e.id for e in parts["dev"]]


def test_every_tuning_set_holds_out_other_templates(task):
    held_out = [{e.meta["template"] for e in task.examples(f"{condition}/dev")} for condition in TUNING]
    assert len(set.union(*held_out)) == sum(map(len, held_out))


def test_examples_contain_the_entities_needed_to_restore_programs(task, expected):
    example = all_examples(task)[859]
    assert " ".join(example.target) == "state next_to_2 longest river loc_2 countryid_ENTITY"
    assert example.meta["entities"] == ("countryid('usa')",)
    for number, example in all_examples(task).items():
        assert task.answer(example, example.target) == expected[number]["funql"] == example.meta["funql"]
        assert list(example.meta["entities"]) == expected[number]["entities"]
        assert task.is_correct(example, example.target)


def test_programs_written_with_all_have_the_same_answers(data_dir, expected):
    task = GeoQuery("zh", write_all=True, data_dir=data_dir)
    for number, example in all_examples(task).items():
        assert " ".join(example.target) == expected[number]["program_all"]
        assert task.answer(example, example.target) == expected[number]["funql"]


def test_the_vocabulary_has_fifty_tokens(task):
    tokens = Counter(token for e in all_examples(task).values() for token in e.target)
    assert len(tokens) == 50
    assert tokens.keys() == task.grammar.tokens - {"all"}


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("state next_to_2", "the program stops after 2 tokens; expected"),
        ("state next_to_2 cityid_ENTITY", "token 3: 'cityid_ENTITY' is not allowed here"),
        ("state traverse_1 riverid_ENTITY", "needs more entities of type 'riverid' than the question has"),
        (
            "intersection loc_2 countryid_ENTITY loc_2 countryid_ENTITY",
            "needs more entities of type 'countryid'",
        ),
    ],
)
def test_an_output_that_is_not_a_program_has_no_answer(task, output, words):
    example = all_examples(task)[859]
    with pytest.raises(ValueError, match=words):
        task.answer(example, output.split())
    assert not task.gives_same_answer(example, output.split())


def test_execution_accuracy_compares_answers_not_programs(task):
    example = all_examples(task)[858]
    assert example.meta["funql"] == "answer(state(next_to_2(stateid('texas'))))"
    assert task.execute(example.target, example) == {
        f"stateid('{name}')" for name in ("arkansas", "louisiana", "new mexico", "oklahoma")
    }
    assert task.gives_same_answer(example, ["next_to_1", "stateid_ENTITY"])
    assert not task.is_correct(example, ["next_to_1", "stateid_ENTITY"])
    assert not task.gives_same_answer(example, ["state", "stateid_ENTITY"])
    assert not task.gives_same_answer(example, ["most", "state"])


def test_an_unknown_split_or_language_is_an_error(data_dir, task):
    with pytest.raises(ValueError, match="geoquery has no split 'dev'; choose one of iid/train"):
        task.examples("dev")
    with pytest.raises(DataError, match=r"geoFunql-xx\.corpus: there is no such file"):
        GeoQuery("xx", data_dir=data_dir).examples("iid/dev")


BLOCK = "id:{id}\nnl:{nl}\nmrl:{mrl}\nproductions:\n*n:Query -> x\n\n"
GOOD = BLOCK.format(id=0, nl="name a river", mrl="answer(river(all))")


@pytest.fixture
def corpus(tmp_path):
    def write(content):
        path = tmp_path / "geoquery" / "geoFunql-xx.corpus"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_a_new_language_needs_only_a_corpus_file(corpus, tmp_path):
    path = corpus("".join(BLOCK.format(id=i, nl="ποτάμι", mrl="answer(river(all))") for i in range(880)))
    example = GeoQuery("xx", data_dir=tmp_path).examples("len/train")[0]
    assert (example.source, example.target) == (("ποτάμι",), ("river",))
    with pytest.raises(DataError, match=r"geobase: there is no such file"):
        GeoQuery("xx", data_dir=tmp_path).execute(["river"], example)
    corpus(path.read_text(encoding="utf-8").replace("id:879\n", "id:880\n"))
    with pytest.raises(DataError, match=r"xx\.corpus: question 879 is missing; expected ids 0 to 879"):
        GeoQuery("xx", data_dir=tmp_path).examples("len/train")
    corpus("".join(BLOCK.format(id=i, nl="ποτάμι", mrl="answer(river(all))") for i in range(881)))
    with pytest.raises(DataError, match=r"xx\.corpus: unknown question id 880"):
        GeoQuery("xx", data_dir=tmp_path).examples("len/train")


@pytest.mark.parametrize(
    ("mrl", "words"),
    [
        ("answer(river(all)", "the bracket opened by token 2 is never closed"),
        ("answer(river(all)))", r"token 8 is '\)', but no bracket is open"),
        ("answer(stream(all))", "unknown function 'stream'"),
        ("answer(len(city(all)))", "'city' with 1 argument is not allowed there"),
        ("answer(exclude(river(all)))", "'exclude' with 1 argument is not allowed there"),
        ("answer(river(riverid(all)))", "does not name an entity"),
        ("answer(city(cityid('austin')))", "does not name an entity"),
        ("answer(state(stateid('texas', _)))", "does not name an entity"),
        ("answer(river(riverid('red)))", 'character 22, "\'", is not FunQL'),
        ("river(all)", r"expected a program answer\(...\) with one argument"),
        ("answer(river(all), river(all))", r"expected a program answer\(...\) with one argument"),
        ("", "ends after token 0"),
        ("answer" + "(state" * 100_000, "inside one another"),
    ],
)
def test_programs_that_cannot_be_parsed_are_errors_with_their_line(corpus, mrl, words):
    with pytest.raises(DataError, match=f"xx.corpus, line 9: cannot parse .*{words}") as caught:
        read_corpus(corpus(GOOD + BLOCK.format(id=1, nl="what", mrl=mrl)))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "line 1: the file is empty"),
        (GOOD + GOOD, "line 7: id 0 occurs twice"),
        (GOOD.replace("id:0", "id:zero"), "line 1: the id is 'zero'; expected a number"),
        (GOOD.replace("nl:name a river", "nl: "), "line 2: the question is empty"),
        (GOOD.replace("mrl:", "lambda:"), "line 3: expected a line `mrl:...` as line 3 of a block"),
        (GOOD.replace("nl:name a river\n", "nl:name a\n\nriver\n"), "line 2: expected a line `mrl:...`"),
        ("id:0\n\n", "line 1: expected a line `nl:...` as line 2 of a block"),
        (GOOD.replace("*n:", "# "), "line 5: expected a production"),
        (GOOD.replace("river", "ri\rver"), "line 2: .*carriage return"),
        ("\x00" + GOOD, "line 1: .*zero bytes"),
        (GOOD.encode().replace(b"a river", b"a r\xefver"), "line 2: byte 12"),
        (GOOD.replace("a river", "a river " * 1_250_000), "line 2: the line is longer"),
    ],
)
def test_malformed_blocks_are_errors_with_their_line(corpus, content, words):
    with pytest.raises(DataError, match=f"xx.corpus, {words}"):
        read_corpus(corpus(content))


def test_windows_line_ends_are_read_as_in_the_english_file(corpus):
    assert read_corpus(corpus(GOOD.replace("\n", "\r\n"))) == read_corpus(corpus(GOOD))


def test_masks_are_restored_in_order_within_their_type():
    question = read_funql(
        "answer(intersection(traverse_1(riverid('red')), exclude(stateid('ohio'), stateid('iowa'))))"
    )
    masked, entities = mask(question)
    assert [write_funql(e) for e in entities] == ["riverid('red')", "stateid('ohio')", "stateid('iowa')"]
    assert unmask(masked, entities) == question
    assert unmask(masked, [entities[1], entities[0], entities[2]]) == question
    assert unmask(masked, entities[::-1]) != question
    assert (
        template(question) == "answer(intersection(traverse_1(riverid(_)), exclude(stateid(_), stateid(_))))"
    )


def test_an_entity_without_a_name_is_not_masked():
    assert mask(read_funql("answer(state(stateid))")) == (Program("state", (Program("stateid"),)), [])


def test_entity_names_are_those_of_geobase_and_their_english_variants(task):
    names = task.entities
    assert names["texas"] == "stateid"
    assert names["new york"] == "cityid/stateid"
    assert names["ohio"] == "riverid/stateid"
    assert names["ohio river"] == "placeid/riverid"  # a low point has that name, too
    assert names["austin texas"] == "cityid"
    assert names["usa"] == names["united states"] == "countryid"
    assert names["superior"] == "placeid"
    assert "high point" not in names  # a city, but the words of a question mean something else


def test_entity_names_find_the_entities_of_questions_without_their_programs(task):
    names, agreed = task.entities, 0
    words = EntityVocabulary.build([], names)
    examples = task.examples("temp/train")
    for example in examples:
        found = [names[unit].split("/") for unit in words.tokenize(example.source) if unit in names]
        masked = [word.removesuffix("_ENTITY") for word in example.target if word.endswith("_ENTITY")]
        agreed += len(found) == len(masked) and all(any(kind in kinds for kinds in found) for kind in masked)
    assert agreed / len(examples) > 0.99


def test_the_lists_of_names_find_the_entities_of_questions_in_every_language(language, data_dir):
    task = GeoQuery(language, names="list", fold_umlauts=language == "de", data_dir=data_dir)
    words, examples, agreed = EntityVocabulary.build([], task.entities), all_examples(task).values(), 0
    for example in examples:
        units = words.tokenize(example.source)
        found = [task.entities[unit].split("/") for unit in units if unit in task.entities]
        masked = [word.removesuffix("_ENTITY") for word in example.target if word.endswith("_ENTITY")]
        agreed += all(any(kind in kinds for kinds in found) for kind in masked)
    assert agreed / len(examples) > 0.98


def test_umlauts_are_folded_on_request(data_dir):
    plain, folded = (GeoQuery("de", fold_umlauts=fold, data_dir=data_dir) for fold in (False, True))
    spellings = {word for example in all_examples(plain).values() for word in example.source}
    assert {"flüsse", "fluesse", "stadte", "staedte"} <= spellings
    words = {word for example in all_examples(folded).values() for word in example.source}
    assert {"flusse", "stadte"} <= words
    assert not {"flüsse", "fluesse", "staedte"} & words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id:-1\n*n:CityName -> ({ ' x ' })\n", "follows no name"),
        ("id:-1\nnl:a\n*n:Num -> ({ 0 })\n", "no names"),
    ],
)
def test_a_damaged_list_of_names_is_an_error(tmp_path, content, words):
    path = tmp_path / "geoquery/geoFunql-xx.init.corpus"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        _ = GeoQuery("xx", names="list", data_dir=tmp_path).entities


def test_names_come_from_geobase_or_from_a_list():
    with pytest.raises(ValueError, match="expected 'geobase' or 'list'"):
        GeoQuery(names="gazetteer")


def test_entity_names_need_geobase(tmp_path):
    with pytest.raises(DataError, match="geobase"):
        _ = GeoQuery(data_dir=tmp_path).entities
