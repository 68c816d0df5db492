"""Tests that stand in an argument: of \\ifthenelse with \\AND, \\OR and \\NOT, and of commands such as \\ifdef and \\ifstrequal."""

import re

from papergym.data_pipeline.latex.conditionals import NUMBERS, State, compare, is_defined, value_of

BOOLEAN = re.compile(r"\\boolean\s*\{\s*([^{}]+?)\s*\}")
EQUAL = re.compile(r"\\equal\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
UNDEFINED = re.compile(r"\\isundefined\s*(?:\{\s*\\([A-Za-z@]+)\s*\}|\\([A-Za-z@]+))")
NEGATION = re.compile(r"\\(?:not|NOT)(?![A-Za-z])\s*")
OPERATOR = re.compile(r"\\(and|or)(?![A-Za-z])", re.IGNORECASE)
BRACKET = re.compile(r"\\([()])|\\.|([{}])", re.DOTALL)
CONSTANTS = {"true": True, "false": False}
COMMAND = re.compile(r"\s*\\([A-Za-z@]+)\s*")
# Commands whose branches are arguments, by the number of arguments before them.
ARGUMENTS = {
    "ifdef": 1, "ifundef": 1, "ifcsdef": 1, "ifcsundef": 1, "@ifundefined": 1, "ifdefempty": 1, "ifblank": 1, "ifnotblank": 1,
    "notblank": 1, "ifstrempty": 1, "ifdefstring": 2, "ifstrequal": 2,
}  # fmt: skip


def evaluate_test(test: str, state: State) -> bool | None:
    """The truth of the first argument of \\ifthenelse; None when the source doesn't tell, or mixes \\AND and \\OR without brackets."""
    test = test.strip()
    parts, operators = _split(test)
    if operators:
        truths = {evaluate_test(part, state) for part in parts}
        if len(operators) > 1:
            return None
        decides = operators == {"or"}  # one part of this value decides
        return decides if decides in truths else None if None in truths else not decides
    if negation := NEGATION.match(test):
        inner = evaluate_test(test[negation.end() :], state)
        return None if inner is None else not inner
    if test.startswith(("{", "\\(")) and test.endswith(("}", "\\)")):
        inner_test = test[1:-1] if test.startswith("{") else test[2:-2]
        return evaluate_test(inner_test, state) if inner_test else None
    if match := BOOLEAN.fullmatch(test):
        return CONSTANTS.get(match[1], state.flags.get(match[1]))
    if match := EQUAL.fullmatch(test):
        return _equal(match[1], match[2], state)
    if match := UNDEFINED.fullmatch(test):
        defined = is_defined(match[1] or match[2], state)
        return None if defined is None else not defined
    if match := NUMBERS.fullmatch(test):
        return compare(match, state)
    return None


def evaluate_command(name: str, arguments: list[str], state: State) -> bool | None:
    """The truth that \\name, one of ARGUMENTS, chooses its branch by; None when the source doesn't tell."""
    first = arguments[0]
    if name in ("ifdef", "ifundef", "ifcsdef", "ifcsundef", "@ifundefined"):
        command = COMMAND.fullmatch(first) if name in ("ifdef", "ifundef") else re.fullmatch(r"\s*([A-Za-z@]+)\s*", first)
        defined = is_defined(command[1], state) if command else None
        return defined if name.endswith("def") and "undef" not in name else None if defined is None else not defined
    if name in ("ifblank", "ifnotblank", "notblank", "ifstrempty"):
        return (first.strip() == "") == ("not" not in name)
    if name == "ifstrequal":
        return first == arguments[1]
    command = COMMAND.fullmatch(first)
    macro = state.macros.get(command[1]) if command else None
    if macro is None or macro.parameters:
        return None
    return macro.body == ("" if name == "ifdefempty" else arguments[1])


def _equal(one: str, other: str, state: State) -> bool | None:
    first, second = value_of(one, state), value_of(other, state)
    return None if first is None or second is None else first == second


def _split(test: str) -> tuple[list[str], set[str]]:
    """The parts between the \\AND and \\OR that stand in no bracket, and which of both these are."""
    parts, operators, depth, start = [], set(), 0, 0
    for match in BRACKET.finditer(test):
        bracket = match[1] or match[2]
        if bracket:
            depth += 1 if bracket in "({" else -1
        elif not depth and (operator := OPERATOR.match(test, match.start())):
            parts.append(test[start : match.start()])
            operators.add(operator[1].lower())
            start = operator.end()
    return [*parts, test[start:]], operators
