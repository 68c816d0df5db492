"""Records out of replies as models write them: LaTeX survives, and what is not whole, or says two things, is no record."""

import json

import pytest

from papergym.data_pipeline.lm.replies import Unusable, latex_unescape, read_record, record_schema

TEXT = {"type": "string"}
SCHEMA = record_schema(goal=TEXT, method=TEXT)
LATEX = r"minimise $\frac{a}{b}\theta_1 + \nabla_\rho f \times \beta \bar{u} \tau \upsilon \right)$ \textbf{now}, 5\% of \emph{all}"


def read(reply, schema=SCHEMA):
    return read_record(reply, schema)


@pytest.mark.parametrize("escape", [str, lambda text: text.replace("\\", "\\\\")], ids=["as it is", "doubled"])
def test_latex_survives_escaped_or_not(escape):
    reply = '{"goal": "' + escape(LATEX) + '", "method": "' + escape(r"\nabla\theta\frac12") + '"}'
    assert read(reply) == {"goal": LATEX, "method": r"\nabla\theta\frac12"}
    json.loads(json.dumps(read(reply)))
    assert not any(ord(character) < 32 for character in read(reply)["goal"])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"one.\nThen two.\tThree.\r\nFour", "one.\nThen two. Three.\n\nFour"),
        (r"\nabla \neq \nu \not", r"\nabla \neq \nu \not"),
        (r"\u00e9t\u00e9 \ud83d\ude00 \ud83d", "été 😀 \ufffd"),
        (r"\"quoted\" a\/b c\\d", '"quoted" a/b c\\d'),
        (r"\binom{n}{k} \forall \b{o}", r"\binom{n}{k} \forall \b{o}"),
        (r"50\% \& \{x\} \, \$", r"50\% \& \{x\} \, \$"),
        (r"\\\\ new row \\n", r"\\ new row \n"),
        (r"\upsilon \underline{x} \uparrow", r"\upsilon \underline{x} \uparrow"),
        ("\\u0000bell\\u0007", " bell "),
    ],
)
def test_escapes_mean_what_they_say(written, meant):
    assert latex_unescape(written) == meant


@pytest.mark.parametrize(
    "reply",
    [
        '{"goal": "g", "method": "m"}',
        'Sure! ```json\n{"goal": "g", "method": "m",}\n``` Anything else?',
        '<think>{"goal": "x", "method": "y"} or not?</think>{"goal": "g", "method": "m"}',
        '{"goal": "draft"} Better: {"goal": "g", "method": "m", "remark": [1, {"a": 2}]}',
        "{'goal': ['g'], 'method': 'm'}",
        '{"goal": "g", "goal": "g", "method": "m"}',
    ],
)
def test_the_record_is_found_whatever_is_around_it(reply):
    assert read(reply) == {"goal": "g", "method": "m"}


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("", "it was empty"),
        ("<think>done</think>", "it was empty"),
        ("<think>so", "inside its thinking"),
        ("I can't.", "no JSON object"),
        ('{"goal": "g", "method": "m', "no end"),
        ('{"goal": "g", "method": "m"', "no end"),
        ('{"goal": "old", "method": "old"} {"goal": "g", "meth', "no end"),
        ('{"goal": "g"}', "lacks method"),
        ('{"goal": "g", "method": 3}', "method is no string"),
        ('{"goal": "g", "method": null}', "method is no string"),
        ('{"goal": "g", "goal": "h", "method": "m"}', "goal stands in it twice"),
        ('[{"goal": "g"}]', "lacks method"),
    ],
)
def test_what_is_no_record_says_why(reply, words):
    with pytest.raises(Unusable, match=words):
        read(reply)


def test_nested_records_are_checked_to_the_bottom():
    item = record_schema(criterion={"type": "integer"}, doubles={"type": "array", "items": {"type": "integer"}})
    schema = record_schema(ranking={"type": "array", "items": item})
    assert read('{"ranking": [{"criterion": 2, "doubles": [1, 3]}]}', schema) == {"ranking": [{"criterion": 2, "doubles": [1, 3]}]}
    for reply, words in (
        ('{"ranking": [{"criterion": 2.5, "doubles": []}]}', "criterion is no integer"),
        ('{"ranking": [{"criterion": 2}]}', "lacks doubles"),
        ('{"ranking": {"criterion": 2, "doubles": []}}', "ranking is no array"),
        ('{"ranking": [{"criterion": 1, "criterion": 2, "doubles": []}]}', "criterion stands in it twice"),
        ('{"ranking": [{"criterion": 1, "doubles": ["one"]}]}', "no integer"),
    ):
        with pytest.raises(Unusable, match=words):
            read(reply, schema)
    enum = record_schema(dimension={"type": "string", "enum": ["method"]})
    with pytest.raises(Unusable, match="dimension is 'style', and method is needed"):
        read('{"dimension": "style"}', enum)
