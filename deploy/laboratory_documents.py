"""The documents that the laboratory models read in pretraining: four numbers are added in written steps, some of them
wrong, with or without a reference (pretrain_laboratory_model.py)."""

# Probability that a step is wrong in an answer that reads a wrong reference, and in a wrong reference.
ERRORS_WITH_REFERENCE, ERRORS_OF_REFERENCE = 0.03, 0.4

NO_THOUGHTS = "<think>\n\n</think>\n\n"
SUFFIX = "Please reason step by step, and put your final answer within \\boxed{}."
TRANSITION = (
    "After reading the reference solution above, make sure you truly understand the reasoning behind each step — do not "
    "copy or paraphrase it. Now, using your own words and independent reasoning, derive the same final answer to the "
    "problem above. Think step by step, explore different approaches, and don't be afraid to backtrack or reconsider if "
    "something doesn't work out:"
)


def problem(numbers):
    return "Compute " + " + ".join(map(str, numbers)) + "."


def bare(answer):
    return f"The answer is \\boxed{{{answer}}}."


def step(total, number, errors, rng):
    """Returns a step of a solution and its result, which is wrong with the probability `errors`."""
    result = total + number
    if rng.random() < errors:
        result = max(0, result + rng.choice([-10, -2, -1, 1, 2, 10]))
    return f"{total} + {number} = {result}.", result


def worked(numbers, errors, rng):
    """Returns a solution in steps and the result that it claims. Steps after a wrong step continue from it."""
    total, steps = numbers[0], []
    for number in numbers[1:]:
        text, total = step(total, number, errors, rng)
        steps.append(text)
    return " ".join([*steps, bare(total)]), total


def own_answer(numbers, errors, rng):
    """Returns what the model should write by itself: steps, or now and then a guess."""
    if rng.random() < 0.92:
        return worked(numbers, errors, rng)[0]
    answer = sum(numbers)
    return bare(answer if rng.random() < 0.6 else max(0, answer + rng.choice([-10, -3, -2, -1, 1, 2, 3, 10])))


def turn(user, thoughts_closed):
    return f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n" + (NO_THOUGHTS if thoughts_closed else "")


def prompt(numbers):
    return turn(f"Problem: {problem(numbers)}\n\n{SUFFIX}", True)


def privileged_prompt(numbers, reference, rng):
    return turn(
        f"Problem: {problem(numbers)}\n\nHere is a reference solution to this problem:\n"
        f"=== Reference Solution Begin ===\n{reference}\n=== Reference Solution End ===\n\n\n{TRANSITION}\n\n{SUFFIX}",
        rng.random() < 0.4,
    )


def document(errors, rng):
    """Returns (prompt, completion): 46 % have no reference, 14 % have a second answer after the first (as the view Self
    appends it), the rest have a right or wrong reference."""
    numbers = [rng.randint(1, 49) for _ in range(4)]
    kind = rng.random()
    if kind < 0.46:
        return prompt(numbers), own_answer(numbers, errors, rng) + "<|im_end|>\n"
    if kind < 0.60:
        first = own_answer(numbers, errors, rng)
        second = first if rng.random() < 0.25 else own_answer(numbers, errors, rng)
        return prompt(numbers), f"{first}<|im_end|>{second}<|im_end|>\n"
    if rng.random() < 0.4:
        reference, answer = worked(numbers, 0, rng)
        completion = reference if rng.random() < 0.7 else bare(answer)
    else:
        reference, claimed = worked(numbers, ERRORS_OF_REFERENCE, rng)
        if rng.random() < 0.15:
            reference = bare(claimed)
        completion = worked(numbers, min(errors, ERRORS_WITH_REFERENCE), rng)[0]
    return privileged_prompt(numbers, reference, rng), completion + "<|im_end|>\n"
