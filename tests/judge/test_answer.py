import pytest

from papergym.judge.answer import is_refusal, plan_of


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


@pytest.mark.parametrize(
    "plan, refused",
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I am unable to provide a research plan on this topic.", True),
        ("Sorry, I cannot assist with this request. " + "It may do harm. " * 10, True),
        ("Unfortunately, we won’t be able to answer.", True),
        ("**I can't write that plan.**", True),
        ("", False),
        ("We cannot assume that rods are smooth, so we measure them.", False),
        ("First we measure it. I can't help with that.", False),
        ("Unfortunately the silo can clog; we will not use grain.", False),
        ("I can't provide raw data. " + "We measure the outflow of rods. " * 40, False),
    ],
)
def test_a_short_plan_that_begins_by_declining_is_a_refusal(plan, refused):
    assert is_refusal(plan) is refused
