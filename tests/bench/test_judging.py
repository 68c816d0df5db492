"""The bench of judges without a server: its plans, and what it makes of turns that are made up."""

import pytest

from papergym.bench.judging import PLAIN, as_markdown, exam_plans, summary
from papergym.model.generation.chat_models import Usage


def test_plans_are_those_of_the_exam_and_never_the_same_twice():
    plans = exam_plans(100)
    assert len({(environment.id, plan) for environment, plan in plans}) == 100
    assert plans[:12] == exam_plans(12) and all(environment.rubric and environment.reference for environment, _ in plans)
    assert plans[-1][1].endswith("This is version 3.")


def turn(way, number, seconds, generated, verdicts):
    environment, _ = exam_plans(1)[0]
    count = len(environment.rubric)
    usage = Usage(requests=5, prompt_tokens=1000, cached_tokens=400, completion_tokens=generated)
    record = {"environment": environment.id, "judge": way, "run": 0, "row": f"round {number}", "sample": 0}
    record |= {"specialised": verdicts[:count], "general": verdicts[count:]}
    return {"way": way, "plans": 1, "seconds": seconds, "usage": usage, "records": [record]}


def test_figures_by_hand():
    """Two rounds of one plan each. The median of the speeds over the plain client's in the same round, not the speed of the means."""
    count = len(exam_plans(1)[0][0].rubric) + 7
    half = [True] * (count // 2) + [False] * (count - count // 2)
    turns = []
    for number, slow in enumerate((1.0, 3.0)):
        turns.append(turn(PLAIN, number, 8.0 * slow, 900, half))
        turns.append(turn("json", number, 4.0 * slow, 600, half))
        turns.append(turn("logprob", number, 2.0 * slow, 60, [None, *[not verdict for verdict in half[1:]]]))
    record = summary(turns)
    way = record["ways"]["logprob"]
    assert way["faster"] == 4.0 and way["fewer_tokens"] == 10.0 and way["plans_per_second"] == pytest.approx(2 / 8)
    assert (way["slowest"], way["fastest"]) == (pytest.approx(1 / 6), 0.5)
    assert (way["generated"], way["prompt"], way["cached"], way["requests"]) == (120, 2000, 800, 10)
    assert (way["unread"], way["verdicts"]) == (2, 2 * count)
    assert record["ways"][PLAIN]["faster"] == 1.0
    pairs = {tuple(pair["of"]): pair for pair in record["pairs"]}
    assert pairs[PLAIN, "json"]["agreement"]["mean"] == pairs[PLAIN, "json"]["kappa"]["mean"] == 1.0
    assert pairs["json", "logprob"]["agreement"]["mean"] == 0.0 and pairs["json", "logprob"]["kappa"]["mean"] < 0
    table = as_markdown(record)
    assert f"2 of {2 * count}" in table and "0.250 (0.167 to 0.500)" in table
