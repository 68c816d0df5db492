import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papergym.environment import Criterion, Environment
from papergym.errors import InputError
from papergym.judge.scoring import ADDRESS, Scored, combine, judge_record, open_judge, score_all
from papergym.model.generation.http_client import Endpoint

T, F, N = True, False, None


@pytest.mark.parametrize(
    "specialised, general, options, reward",
    [
        ([T, F, T, F], [T, F], {}, 0.7 * 0.5 + 0.3 * 0.5),
        ([T, T, F], [F, F, F, T], {}, 0.7 * 2 / 3 + 0.3 * 0.25),
        ([T, N, F, N], [N, T, N], {}, 0.7 * 0.5 + 0.3),  # means over what is scored
        ([F] * 10, [F] * 7, {}, 0.0),
        ([T] * 10, [T] * 7, {}, 1.0),
        ([T, F], [F], {"alpha": 1.0}, 0.5),
        ([F, F], [T, F], {"alpha": 0.0}, 0.5),
        ([T, F], [T], {"alpha": 0.25}, 0.25 * 0.5 + 0.75),
        # weights: points met / positive points of the scored
        ([T, F, T], [T], {"weights": [5, 3, 2], "alpha": 1.0}, 0.7),
        ([T, N, T], [T], {"weights": [5, 3, 2], "alpha": 1.0}, 1.0),
        ([T, F, T], [T], {"weights": [6, 2, -4], "alpha": 1.0}, 0.25),
        ([T, F, F], [T], {"weights": [6, 2, -4], "alpha": 1.0}, 0.75),
        ([F, F, T], [T], {"weights": [6, 2, -4], "alpha": 1.0}, 0.0),  # clipped
        ([T, T, N], [F], {"weights": [6, 2, -4]}, 0.7),
        # a set that counts has nothing scored
        ([N, N], [T], {}, None),
        ([T], [N, N], {}, None),
        ([], [T], {}, None),
        ([T], [], {}, None),
        ([F, F, T], [T], {"weights": [0, 0, -1]}, None),
        # one that doesn't
        ([N, N], [T, F], {"alpha": 0.0}, 0.5),
        ([T], [N], {"alpha": 1.0}, 1.0),
    ],
)
def test_reward_by_hand(specialised, general, options, reward):
    assert combine(specialised, general, **options) == (None if reward is None else pytest.approx(reward, abs=1e-12))


VERDICTS = st.lists(st.sampled_from([T, F, N]), min_size=1, max_size=12)


@given(VERDICTS, VERDICTS, st.floats(0, 1))
def test_reward_is_bounded_and_rises_with_every_criterion_met(specialised, general, alpha):
    reward = combine(specialised, general, alpha)
    assert reward is None or 0 <= reward <= 1 + 1e-12
    assert combine(specialised, general, alpha, weights=[1.0] * len(specialised)) == reward
    if F in specialised and reward is not None:
        better = list(specialised)
        better[better.index(F)] = T
        gain = combine(better, general, alpha) - reward
        assert gain == pytest.approx(alpha / sum(verdict is not None for verdict in specialised), abs=1e-9)


@pytest.mark.parametrize(
    "options", [{"alpha": 1.1}, {"alpha": math.nan}, {"weights": [1.0]}, {"weights": [1.0, math.inf]}], ids=lambda options: str(options)
)
def test_bad_options_are_named(options):
    with pytest.raises(InputError, match=next(iter(options))):
        combine([T, F], [T], **options)


def test_judges_are_named_by_kind_or_function(tmp_path, monkeypatch):
    (tmp_path / "lenient.py").write_text(
        "from papergym.judge.scoring import Scored\n"
        "class Lenient:\n"
        "    def __init__(self, reward=1.0): self.reward = reward\n"
        "    def score(self, items): return [Scored((), (), self.reward) for _ in items]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert type(open_judge("lexical")).__name__ == "LexicalJudge"
    assert open_judge("lenient:Lenient").score([(None, "")]) == [Scored((), (), 1.0)]
    assert open_judge({"kind": "lenient:Lenient", "reward": 0.25}).score([(None, "")]) == [Scored((), (), 0.25)]


@pytest.mark.parametrize(
    "spec, message",
    [
        ("oracle", "unknown judge 'oracle': use one of ensemble, lexical, llm"),
        ({"alpha": 0.5}, "'kind' names the judge"),
        ({"kind": "lexical", "treshold": 0.5}, "treshold"),
        ({"kind": "lexical", "rule": {"threshold": 2.0}}, "threshold 2.0"),
        ({"kind": "lexical", "alpha": -0.1}, "alpha -0.1"),
        ({"kind": "lexical", "rule": {"window": 0}}, "window 0"),
        ({"kind": "lexical", "rule": {"window": "three"}}, "judge.rule.window"),
        ({"kind": "builtins:dict"}, "no method score"),
        ("nowhere.to.be:found", "no module named"),
        ("posixpath:join", r"judge 'posixpath:join': it takes \(a, \*p\), where a function of \(\) is needed"),
    ],
)
def test_a_wrong_specification_is_named(spec, message):
    with pytest.raises(InputError, match=message):
        open_judge(spec)


@pytest.mark.parametrize(("scores", "words"), [([], "0 scores for 1 plans"), ([math.inf], "inf"), (["0.5"], "'0.5'"), ([True], "True")])
def test_what_a_judge_returns_is_checked(scores, words):
    class Odd:
        def score(self, items):
            return [Scored((), (), reward) for reward in scores]

    with pytest.raises(InputError, match=words):
        score_all(Odd(), [(Environment("a", "cs", "Q?", (Criterion("c"),)), "plan")])


def test_scores_name_judge_options_and_version_but_no_address(tmp_path, monkeypatch):
    """The same judge at another address is the same; other options, general criteria or rules are not; members of an ensemble are named."""
    assert {field.name for field in fields(Endpoint)} == ADDRESS
    lexical = judge_record("lexical", open_judge("lexical"))
    assert lexical == {"kind": "lexical", "version": open_judge("lexical").version}
    (tmp_path / "general.toml").write_text('[[criterion]]\nname = "Short"\ntext = "It is short."\ncheck = "detailed"\n')
    versions = {open_judge({"kind": "lexical", **options}).version for options in ({}, {"general": str(tmp_path / "general.toml")})}
    monkeypatch.setattr("papergym.judge.lexical.RULE", "next")
    assert len(versions | {open_judge("lexical").version}) == 3

    def llm(url, **options):
        spec = {"kind": "llm", "model": {"kind": "http", "url": url, "model": "m", "cache": str(tmp_path / url[-1])}, **options}
        return spec, judge_record(spec, open_judge(spec))

    (_, one), (spec, same), (_, other) = llm("http://a"), llm("http://b"), llm("http://a", way="logprob")
    assert one == same != other and one["model"] == {"kind": "http", "model": "m"} and len(one["version"]) == 8
    ensemble = {"kind": "ensemble", "judges": ["lexical", spec]}
    record = judge_record(ensemble, open_judge(ensemble))
    assert record["judges"] == [{"kind": "lexical"}, {name: value for name, value in one.items() if name != "version"}]
    assert record["version"].split() == [open_judge("lexical").version, one["version"]]


def test_the_largest_weights_there_are():
    assert combine([True, True, False], [True], weights=[1e308, 1e308, 1e308]) == pytest.approx(0.7 * 2 / 3 + 0.3)
    assert combine([True, False], [False], weights=[5e-324, 5e-324]) == pytest.approx(0.35)
