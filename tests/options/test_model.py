import pytest

from permalign.errors import ConfigError
from permalign.options.model import ModelOptions


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hed": {}}, "unknown option hed; did you mean head?"),
        (
            {"head": {"encoder": {"hiden_size": 3}}},
            "unknown option head.encoder.hiden_size; did you mean head.encoder.hidden_size?",
        ),
        ({"head": {"zzz": 1}}, "unknown option head.zzz; choose from kind, embedding_dim"),
        ({"head": {"kind": "snt"}}, "head.kind: unknown head 'snt'; did you mean 'ssnt'?"),
        ({"head": {"dropout": 1.0}}, "head.dropout is 1.0: input should be less than 1"),
        ({"head": {"context": 0}}, "head.context is 0"),
        ({"reorderer": {"temperature": 0}}, "reorderer.temperature is 0"),
    ],
)
def test_invalid_options_are_errors(values, message):
    with pytest.raises(ConfigError) as caught:
        ModelOptions.parse(values)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("reorderer", "head", "message"),
    [
        ({"kind": "separable", "objective": "exact"}, {"kind": "ssnt"}, "Use reorderer.objective: samples"),
        ({"kind": "separable", "objective": "exact"}, {"kind": "tagging"}, "Use head.encoder: {kind: none}"),
        (
            {"kind": "separable", "shared_embeddings": True, "embedding_dim": 64},
            {"kind": "ssnt", "embedding_dim": 32},
            "Set reorderer.embedding_dim: 32",
        ),
        ({"kind": "separable", "inversion_weight": 1.0}, {}, "go together"),
        ({"kind": "labelled", "objective": "exact"}, {"kind": "ssnt"}, "Use reorderer.objective: samples"),
        ({"kind": "labelled", "objective": "exact"}, {"kind": "tagging"}, "Use head.encoder: {kind: none}"),
        ({"kind": "none"}, {"kind": "ssnt", "input_feeding": True}, "Set head.attention: true"),
        (
            {"kind": "none"},
            {"kind": "ssnt", "input_feeding": True, "attention": True, "context": 2},
            "Set head.context: full",
        ),
        (
            {"kind": "none"},
            {"kind": "segments", "input_feeding": True, "attention": True, "history": "segment"},
            "Set head.history: output",
        ),
        ({"kind": "labelled", "normal_form": True}, {}, "Leave normal_form out"),
        ({"kind": "none"}, {"kind": "ssnt", "pruning_threshold": 0.1}, "Set head.kind: segments"),
        *(
            (
                {"kind": "separable", "objective": "exact"} | reorderer,
                head | {"pruning_threshold": 0.1},
                message,
            )
            for reorderer, head, message in (
                ({"objective": "soft"}, {"kind": "segments"}, "Set reorderer.objective: exact"),
                ({"normal_form": True}, {"kind": "segments"}, "Set reorderer.normal_form: false"),
                ({"kind": "labelled"}, {"kind": "segments"}, "Set reorderer.kind: separable"),
                ({}, {"kind": "segments", "max_phrase_length": 2}, "Set head.max_phrase_length: 1"),
            )
        ),
        (
            {"kind": "labelled", "features": "encoding", "encoder": {"hidden_size": 7}},
            {},
            "reorderer.encoder.hidden_size is 7",
        ),
        (
            {"kind": "labelled", "split_scores": True, "encoder": {"kind": "none"}},
            {},
            "reorderer.encoder.kind is none",
        ),
    ],
)
def test_contradicting_options_are_errors_that_suggest_a_combination_that_works(reorderer, head, message):
    with pytest.raises(ConfigError) as caught:
        ModelOptions.parse({"reorderer": reorderer, "head": head})
    assert message in str(caught.value)


def test_options_can_be_saved_as_json():
    options = ModelOptions.parse({"head": {"context": 2}, "reorderer": {"kind": "separable"}})
    assert ModelOptions.model_validate_json(options.model_dump_json()) == options
