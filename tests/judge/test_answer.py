import pytest

from papergym.judge.answer import plan_of


@pytest.mark.parametrize(
    "response, plan",
    [
        ("A plan.", "A plan."),
        ("<think>why</think>\n\nA plan.<|im_end|>", "A plan."),
        ("why</think>A plan.", "A plan."),  # the template opened the block
        ("<think>a</think>b<think>c</think> d ", "d"),
        ("<think>never closed: {1}", None),
        ("<think>a</think>b<think>c", None),
        ("<think></think>", ""),
        ("", ""),
        ("<think>a</think><|im_end|><|endoftext|>", ""),
        ("<s> A plan.</s>", "A plan."),
        ("<|im_start|>assistant\nA plan.<|im_end|>\n", "assistant\nA plan."),
        ("A plan.<｜end▁of▁sentence｜>", "A plan."),
        ("a <|im_end|> b", "a   b"),
        ("a <|im<|x|>_end|> b", "a <|im _end|> b"),  # what is left is no control token
        ("p < q | r > s, <x>, a <|not one|> b", "p < q | r > s, <x>, a <|not one|> b"),
    ],
)
def test_plan_is_what_follows_the_thinking(response, plan):
    assert plan_of(response) == plan
