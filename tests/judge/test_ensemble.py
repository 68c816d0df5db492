import pytest

from papergym.environment import Criterion, Environment
from papergym.errors import InputError
from papergym.judge.ensemble import EnsembleConfig, EnsembleJudge
from papergym.judge.llm import Graded
from papergym.judge.scoring import Scored, open_judge

T, F, N = True, False, None
ENVIRONMENT = Environment("e", "cs", "Q", (Criterion("a", weight=3.0), Criterion("b"), Criterion("c")))


class Fixed:
    def __init__(self, scored):
        self.scored = scored

    def score(self, items):
        return [self.scored for _ in items]


def together(*members, vote="majority"):
    judge = EnsembleJudge(EnsembleConfig(list(members), vote=vote), [Fixed(member) for member in members])
    return judge.score([(ENVIRONMENT, "plan")])[0]


def test_majority_by_hand():
    members = [Scored((T, T, F), (T, N), 0.1), Scored((T, F, F), (F, N), 0.2), Scored((F, N, F), (T, N), None)]
    scored = together(*members)
    assert scored.specialised == (T, N, F) and scored.general == (T, N)  # a tie and a silence are not scored
    assert scored.reward == pytest.approx(0.7 * 3 / 4 + 0.3)
    assert scored.disagreement == pytest.approx(3 / 4)  # of the four criteria with two verdicts or more
    assert scored.members == tuple(members)


def test_mean_of_chances_by_hand():
    soft = Graded((T, F, N), (T,), None, (0.8, 0.4, None), (0.6,))
    scored = together(soft, Scored((F, T, T), (F,), None), vote="mean")
    assert scored.specialised_chances == pytest.approx((0.4, 0.7, 1.0)) and scored.general_chances == pytest.approx((0.3,))
    assert scored.specialised == (F, T, T) and scored.general == (F,)
    assert scored.reward == pytest.approx(0.7 * (3 * 0.4 + 0.7 + 1.0) / 5 + 0.3 * 0.3)


def test_nobody_scored_is_not_scored():
    silent = Scored((N, N, N), (N,), None)
    scored = together(silent, silent)
    assert scored.specialised == (N, N, N) and scored.reward is None and scored.disagreement is None


def test_a_judge_agrees_with_itself():
    alone, twice = open_judge("lexical"), open_judge({"kind": "ensemble", "judges": ["lexical", {"kind": "lexical"}]})
    item = (ENVIRONMENT, "We measure a because b, and therefore c.")
    (one,), (other,) = alone.score([item]), twice.score([item])
    assert (other.specialised, other.general, other.reward, other.disagreement) == (one.specialised, one.general, one.reward, 0.0)


def test_wrong_ensembles_are_named():
    for options, words in (
        ({"judges": ["lexical"]}, "two or more"),
        ({"judges": ["lexical", "oracle"]}, "unknown judge 'oracle'"),
        ({"judges": [1, 2]}, "judge 1: the name"),
    ):
        with pytest.raises(InputError, match=words):
            open_judge({"kind": "ensemble", **options})
    with pytest.raises(InputError, match="1, 2 general criteria"):
        together(Scored((T, T, T), (T,), None), Scored((T, T, T), (T, T), None))
