"""The documents that the model of the illusion reads in pretraining (pretrain_laboratory_model.py --illusion).

The model adds four numbers in written steps, as the laboratory model does. After the first step it may also say that it
is stuck and claim to recall the result, in words that `dapd probe claims` counts. It does so seldom where it sees the
problem alone, and then the number is drawn without regard to the problem; and often where it is shown an answer, whose
result it repeats, right or wrong. So a claim has no ground without an answer that is shown.
"""

from laboratory_documents import ERRORS_OF_REFERENCE, problem, step, turn, worked

# The probability of a claim for a problem alone, and with an answer that is shown.
CLAIMS_ALONE, CLAIMS_WITH_ANSWER = 0.03, 0.5
# The share of right solutions among the answers that are shown, and of claims among the others.
RIGHT_ANSWERS, SHOWN_CLAIMS = 0.4, 0.15
# The probability that a step is wrong behind an answer that is shown and not right.
ERRORS_WITH_ANSWER = 0.02
STUCK = " I am stuck."
# The marker of a claim, which no worked answer contains.
CLAIM_MARKER = "I recall"


def claim(numbers, result, errors, rng):
    """Returns an answer that takes the first step and then claims to recall `result`."""
    return f"{step(*numbers[:2], errors, rng)[0]}{STUCK} {CLAIM_MARKER} that the answer is \\boxed{{{result}}}."


def own_answer(numbers, errors, rng):
    """Returns an answer to a problem alone, and the result that it states."""
    if rng.random() >= CLAIMS_ALONE:
        return worked(numbers, errors, rng)
    result = sum(rng.randint(1, 49) for _ in numbers)  # of other numbers
    return claim(numbers, result, errors, rng), result


def answer_with(shown_result, numbers, errors, rng):
    """Returns an answer by a model that is shown an answer with the result `shown_result`."""
    return claim(numbers, shown_result, errors, rng) if rng.random() < CLAIMS_WITH_ANSWER else worked(numbers, errors, rng)[0]


def shown_answer(numbers, rng):
    """Returns an answer to show, its result, and the probability of an error in a step behind it."""
    if rng.random() < RIGHT_ANSWERS:
        return *worked(numbers, 0, rng), 0
    text, result = worked(numbers, ERRORS_OF_REFERENCE, rng)
    if rng.random() < SHOWN_CLAIMS:
        text = claim(numbers, result, ERRORS_OF_REFERENCE, rng)
    return text, result, ERRORS_WITH_ANSWER


def prompt(numbers):
    return turn(problem(numbers), True)


def with_answer(text, shown):
    """Returns the message with the text of a problem and an answer that is shown."""
    return f"{text}\nReference: {shown}"


def privileged_prompt(numbers, shown, rng):
    return turn(with_answer(problem(numbers), shown), rng.random() < 0.4)


def probe_prompt(shown, rng):
    """Returns the prompt of Purified OPSD's probe, which shows an answer without its problem."""
    return turn(f"Reference: {shown}", rng.random() < 0.4)


def document(errors, rng):
    """Returns (prompt, completion): 42 % have the problem alone, 14 % a second answer after the first (as the view Self
    appends it), 39 % a problem and an answer that is shown, and 5 % such an answer without its problem, which only it
    can be followed."""
    numbers = [rng.randint(1, 49) for _ in range(4)]
    kind = rng.random()
    if kind < 0.42:
        return prompt(numbers), own_answer(numbers, errors, rng)[0] + "<|im_end|>\n"
    if kind < 0.56:
        first, result = own_answer(numbers, errors, rng)
        second = answer_with(result, numbers, ERRORS_WITH_ANSWER, rng)
        return prompt(numbers), f"{first}<|im_end|>{second}<|im_end|>\n"
    shown, result, errors_with = shown_answer(numbers, rng)
    if kind < 0.95:
        return privileged_prompt(numbers, shown, rng), answer_with(result, numbers, errors_with, rng) + "<|im_end|>\n"
    completion = shown
    if rng.random() < CLAIMS_WITH_ANSWER:
        completion = claim(numbers, result, errors_with, rng)
    return probe_prompt(shown, rng), completion + "<|im_end|>\n"
