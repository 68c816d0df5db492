import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papergym.judge.verdicts import parse_verdicts

T, F, N = True, False, None


def items(*pairs, **more):
    return json.dumps({"verdicts": [{"criterion": number, "reason": "r", "verdict": verdict} for number, verdict in pairs], **more})


FORMS = [
    (items((1, 1), (2, 0), (3, 1)), [T, F, T]),
    (items((3, 0), (1, 1)), [T, N, F]),
    ('{"1": 1, "2": 0, "3": 1}', [T, F, T]),
    ("[1, 0, 1]", [T, F, T]),
    ("  [true, false, null]\n", [T, F, N]),
    ("", [N, N, N]),
    ("no JSON here", [N, N, N]),
    ("{}", [N, N, N]),
    ("[]", [N, N, N]),
    # not one of the three forms
    ('{"criterion": 1, "verdict": 1}', [N, N, N]),
    ('{"verdicts": [1, 0, 1]}', [N, N, N]),
    ('[{"criterion": 1, "verdict": 1}, {"criterion": 2, "verdict": 1}, {"criterion": 3, "verdict": 1}]', [N, N, N]),
    ("1, 0, 1", [N, N, N]),
    ("1", [N, N, N]),
]

ARRAYS = [
    ("[1, 0]", [N, N, N]),  # another length
    ("[1, 0, 1, 1]", [N, N, N]),
    ("Verdicts: [1, 0, 1]", [N, N, N]),  # not the whole answer
    ("[1, 0, 1] as said", [N, N, N]),
    ("[1, 0, 1] [1, 0, 1]", [N, N, N]),
    ("[1, 0, 1", [N, N, N]),  # cut: who knows how long it was
    ("[1, 0, 1,]", [T, F, T]),
    ("[1, [0], {}]", [T, N, N]),
    ("['yes', 'no', 'perhaps']", [T, F, N]),
    ("```json\n[1, 0, 1]\n```", [T, F, T]),
    ("``````\n[1, 0, 1]\n``````", [T, F, T]),
    ("`[1, 0, 1]`", [T, F, T]),
    ("~~~\n[True, False, None]\n~~~", [T, F, N]),
    ("```\n[1, 0, 1]", [T, F, T]),
    ("[1, 0, 1]<|im_end|>", [T, F, T]),
    ('[{"1": 1, "2": 0, "3": 1}]', [N, N, N]),  # an array of another length
    ('[1, 0] {"2": 1}', [N, T, N]),  # text around an object
]

VALUES = [
    ('{"1": true, "2": false, "3": null}', [T, F, N]),
    ('{"1": "yes", "2": "NO", "3": " True "}', [T, F, T]),
    ('{"1": "1", "2": "0", "3": "FALSE\\n"}', [T, F, F]),
    ('{"1": "met", "2": "y", "3": ""}', [N, N, N]),
    ('{"1": 2, "2": -1, "3": 0.5}', [N, N, N]),
    ('{"1": 1.0, "2": 0e5, "3": 1.0000000000000000001}', [T, F, N]),
    ('{"1": 1e-400, "2": 1e400, "3": 0.99999999999999999999}', [N, N, N]),
    ('{"1": 1e999999999999999999999, "2": 0x1, "3": 1.2.3}', [N, N, N]),
    ('{"1": [1], "2": {"verdict": 1}, "3": 1}', [N, N, T]),
    ('{"1": NaN, "2": Infinity, "3": unsure}', [N, N, N]),
    ('{"1": "\\u0079es", "2": 0, "3": 1}', [T, F, T]),
]

NUMBERS = [
    (items((0, 1), (4, 1), (-1, 1), (2, 0)), [N, F, N]),
    (items((True, 1), (2, 1)), [N, T, N]),
    (items(("1", 1), (" 2 ", 0), ("three", 1)), [T, F, N]),
    (items((1.0, 1), (1.5, 0), ("٣", 1)), [T, N, N]),
    (items((10**30, 1), ("9" * 5000, 1), (1, 0)), [F, N, N]),
    ('{"0": 1, "4": 1, "c1": 1, "2": 1}', [N, T, N]),
    ('{"verdicts": [{"reason": "no number", "verdict": 1}, {"criterion": 2}]}', [N, N, N]),
    ('{"Verdicts": [{"Criterion": 2, "Verdict": "Yes"}]}', [N, T, N]),
]

DUPLICATES = [
    (items((1, 1), (1, 1), (2, 0)), [T, F, N]),
    (items((1, 1), (1, 0), (2, 0)), [N, F, N]),
    (items((1, 1), (1, "unsure"), (2, 0)), [N, F, N]),
    ('{"1": 1, "1": 0, "2": 1}', [N, T, N]),
    ('{"1": 1, "1": 1}', [T, N, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1, "verdict": 0}]}', [N, N, N]),
    ('{"verdicts": [{"criterion": 1, "criterion": 2, "verdict": 1}]}', [N, N, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1}], "verdicts": [{"criterion": 1, "verdict": 0}]}', [N, N, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1}], "1": 0, "2": 0}', [N, F, N]),
]

SEVERAL = [
    (items((1, 1), (2, 1)) + "\nOn second thoughts:\n" + items((1, 0)), [F, N, N]),  # the last alone, not merged
    (items((1, 1)) + ' {"note": "done"}', [T, N, N]),
    (items((1, 1)) + ' {"7": 0}', [T, N, N]),  # holds no criterion number
    (items((1, 1)) + ' {"2": "unsure"}', [N, N, N]),  # holds one
    ('{"1": 1, ' + items((1, 0)), [F, N, N]),  # a start that was given up
    ("a set {x | x > 0}, {a, b}, then " + items((1, 1)), [T, N, N]),
    (items((1, 1)) + r" by \frac{1}{2} and x_{1:T}, x_{1: 0} and {1}", [T, N, N]),
    ("{" * 50 + items((2, 1)) + "}" * 50, [N, T, N]),
    ('{"a": {"1": 1}}', [N, N, N]),  # an object inside another is no answer of its own
    ('{"verdicts": [{"criterion": 1, "reason": "says {\\"1\\": 0, \\"2\\": 0}", "verdict": 1}]}', [T, N, N]),
]

SPELLING = [
    ("```json\n" + items((1, 1)) + "\n```", [T, N, N]),
    ("`````\n" + items((1, 1)), [T, N, N]),
    ('Sure!\n{"1": 1, "2": 0,}\nHope this helps.', [T, F, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1,}, {"criterion": 2, "verdict": 0},],}', [T, F, N]),
    ("{'verdicts': [{'criterion': 1, 'reason': 'it\\'s', 'verdict': True}, {'criterion': 2, 'verdict': False}]}", [T, F, N]),
    ("{1: True, 2: False, 3: None}", [T, F, N]),
    ("{'verdicts': ({'criterion': 1, 'verdict': 1}, {'criterion': 2, 'verdict': 0},)}", [T, F, N]),
    ('{"verdicts": [{"criterion": 1, "reason": "the users\' \\"own\\" it\'s", "verdict": 1}]}', [T, N, N]),
    ("{'verdicts': [{'criterion': 1, 'reason': 'it's there', 'verdict': 1}]}", [T, N, N]),
    (r'{"verdicts": [{"criterion": 1, "reason": "uses \alpha, \(x\), \frac{1}{2} and \underline{u}", "verdict": 1}]}', [T, N, N]),
    (r'{"verdicts": [{"criterion": 1, "reason": "a lone \ here and at the end \", "verdict": 1}]}', [T, N, N]),
    (r'{"verdicts": [{"criterion": 1, "reason": "Schr\"odinger, \\", "verdict": 1}, {"criterion": 2, "verdict": 0}]}', [T, F, N]),
    ('{"verdicts": [{"criterion": 1, "reason": "two\nlines\tand more", "verdict": 1}]}', [T, N, N]),
    ('{"verdicts": [{"criterion": 1, "reason": "it says "no" twice", "verdict": 1}, {"criterion": 2, "verdict": 0}]}', [T, F, N]),
    ('\ufeff{"1":1}', [T, N, N]),
]

NEVER_INVENTED = [
    # a comma or a quote is missing: the verdict behind it may be another item's
    ('{"verdicts": [{"criterion": 1, "reason": "ok" "verdict": 1}, {"criterion": 2, "reason": "bad", "verdict": 0}]}', [N, N, N]),
    ('{"verdicts": [{"criterion": 1, "reason": "ok, "verdict": 1}, {"criterion": 2, "reason": "bad", "verdict": 0}]}', [N, N, N]),
    # a reason that quotes a verdict from the plan
    ('{"verdicts": [{"criterion": 1, "reason": "it says "x", "verdict": 1, "y": "", "verdict": 0}]}', [N, N, N]),
    ('{"1": 1 or maybe 0, "2": 1}', [N, N, N]),
    ('{"1": 1 0, "2": 1}', [N, N, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1]}', [N, N, N]),
]

CUT = [
    ('{"verdicts": [{"criterion": 1, "verdict": 1}, {"criterion": 2, "reason": "so', [T, N, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1}, {"criterion": 2, "verdict": 1', [T, N, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1}, {"crit', [T, N, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1}', [T, N, N]),
    ('{"verdicts": [{"criterion": 1, "verdict": 1}]', [T, N, N]),
    ('{"verdicts": [', [N, N, N]),
    ('{"1": 1, "2": 0', [T, N, N]),  # 0, or the start of 0.5
    ('{"1": 1, "2": 0, "3', [T, F, N]),
    ('```json\n{"1": 1, "2": 0,\n```', [T, F, N]),
]

THINKING = [
    ('<think>{"1": 0}</think>{"1": 1}', [T, N, N]),
    ('{"1": 0}</think>{"2": 1}', [N, T, N]),
    ('<think>a</think>{"1": 0}<think>b</think>{"2": 1}', [N, T, N]),
    ('<think>{"1": 1}', [N, N, N]),
    ('{"1": 1}<think>', [N, N, N]),
    ('<think>{"1": 1}</think>', [N, N, N]),
    ("<think>x</think>[1, 0, 1]", [T, F, T]),
]


@pytest.mark.parametrize(
    "reply, verdicts", FORMS + ARRAYS + VALUES + NUMBERS + DUPLICATES + SEVERAL + SPELLING + NEVER_INVENTED + CUT + THINKING
)
def test_reads_what_is_there_and_no_more(reply, verdicts):
    assert parse_verdicts(reply, 3) == verdicts
    assert all(type(verdict) in (bool, type(None)) for verdict in parse_verdicts(reply, 3))


@pytest.mark.parametrize(
    "reply",
    [
        '{"a":' * 100_000,
        "[" * 300_000,
        "[" * 200_000 + "]" * 200_000,
        """{"a":'""" * 100_000,
        """{"a":'""" * 100_000 + "':",
        '{"' * 200_000,
        '{"1":1,' * 60_000,
        '{"1":' + " " * 300_000 + '{"1"' * 50_000,
        '{"a":"' + '\\"' * 300_000,
        '{"a":"' + '\\", "a' * 100_000,
        '{"a":"' + '" , ' * 200_000,
        '{"1":' + "1" * 1_000_000 + "}",
        "[" + "1," * 200_000 + "1]",
        "<think></think>" * 100_000,
        "<|" * 300_000 + "|>" * 300_000,
        "<s>" * 300_000,
        "`" * 500_000,
        "{" * 1_000_000,
        " " * 1_000_000,
    ],
    ids=lambda reply: reply[:12],
)
def test_hostile_replies_take_bounded_time(reply):
    started = time.process_time()
    assert parse_verdicts(reply, 3) in ([N, N, N], [T, N, N])
    assert time.process_time() - started < 3


@pytest.mark.parametrize("n", [0, 1, 40])
def test_one_verdict_a_criterion(n):
    assert parse_verdicts(json.dumps({str(number): number % 2 for number in range(1, n + 1)}), n) == [bool(i % 2) for i in range(1, n + 1)]
    assert parse_verdicts("[1]", n) == ([T] if n == 1 else [N] * n)


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(alphabet="\"'{}[]:,\\ \n1verdict<>|`", max_size=30)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="\"'{}[]():,\\ \n01truevdics<>/hink|`~-.e_", max_size=120))
def test_never_fails(reply):
    verdicts = parse_verdicts(reply, 3)
    assert len(verdicts) == 3 and all(verdict in (True, False, None) for verdict in verdicts)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.integers(1, 6), st.tuples(TEXT, st.sampled_from([0, 1, True, False, None, 2, "yes", " No "]))), st.booleans())
def test_every_valid_reply_reads_as_json_does(verdicts, ascii_only):
    meaning = {0: F, 1: T, "yes": T, " No ": F}
    expected = [meaning.get(verdicts[number][1]) if number in verdicts else None for number in range(1, 7)]
    entries = [{"criterion": number, "reason": reason, "verdict": verdict} for number, (reason, verdict) in verdicts.items()]
    reply = json.dumps({"verdicts": entries}, ensure_ascii=ascii_only)
    if "think>" not in reply:
        assert parse_verdicts(f"Here:\n```json\n{reply}\n```\nDone.", 6) == expected
        assert parse_verdicts(json.dumps({number: verdict for number, (_, verdict) in verdicts.items()}), 6) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(TEXT, st.sampled_from([0, 1])), min_size=1, max_size=4), st.data())
def test_a_cut_reply_never_says_what_the_whole_does_not(verdicts, data):
    """A prefix scores a subset of the criteria, alike: an item once its bracket is there."""
    entries = [{"criterion": number, "reason": reason, "verdict": verdict} for number, (reason, verdict) in enumerate(verdicts, 1)]
    reply = json.dumps({"verdicts": entries})
    if "think>" in reply:
        return
    cut = data.draw(st.integers(0, len(reply)))
    whole, part = parse_verdicts(reply, len(verdicts)), parse_verdicts(reply[:cut], len(verdicts))
    assert whole == [verdict == 1 for _, verdict in verdicts]
    lengths = [len(json.dumps({"verdicts": entries[: number + 1]})) - 2 for number in range(len(entries))]
    assert part == [verdict if cut >= length else None for verdict, length in zip(whole, lengths)]
