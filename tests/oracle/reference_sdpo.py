"""SDPO's groups transcribed: which self-teacher reads what, and the view in which it reads it."""

import re

import reference_objective


def siblings(texts, right):
    """Returns for each answer of a group the first other answer that is right, without its thoughts."""
    shown = [re.sub(r"<think>.*?</think>\s*", "", text, flags=re.DOTALL) for text in texts]
    return [next((shown[j] for j in range(len(texts)) if j != i and right[j]), None) for i in range(len(texts))]


def message(problem, sibling, feedback):
    text = f"Problem: {problem}\n\n{reference_objective.INSTRUCTION}"
    if sibling is not None:
        text += f"\nCorrect solution:\n\n{sibling}"
    if feedback is not None:
        text += f"\nThe following is feedback from your unsuccessful earlier attempt:\n\n{feedback}"
    return text + "\n\nCorrectly solve the original question."


def verdict(boxed, truncated):
    """Returns the words of the released grader of mathematics, also for a right answer that was cut off; it says
    nothing about a wrong result."""
    if truncated:
        return "Your response was truncated because it exceeded the maximum length."
    return "" if boxed else "Your answer had the wrong format. The solution must be given in the format: \\boxed{your_answer}."


class Views(reference_objective.Views):
    """The six views, and `sibling_rollout` if there is something to read."""

    def build_groups(self, rows, size, feedback="never"):
        built = []
        for begin in range(0, len(rows), size):
            group = rows[begin : begin + size]
            texts = [self.tokenizer.decode(row["rollout_ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False) for row in group]
            boxes = [re.findall(r"\\boxed\{([^{}]*)\}", text) for text in texts]
            right = [row.get("correct", bool(found) and found[-1] == row["answer"]) for row, found in zip(group, boxes)]
            for row, found, is_right, sibling in zip(group, boxes, right, siblings(texts, right)):
                views = self.build(row["problem"], row["reference"], row["rollout_ids"])
                told = row.get("feedback") or verdict(bool(found), row.get("finish_reason") == "length")
                if told == "" or feedback == "never" or (feedback == "without_sibling" and sibling is not None):
                    told = None
                if sibling is not None or told is not None:
                    prompt = self.cut(self.ids(self.prompt(message(row["problem"], sibling, told), False)))
                    ids, start, count = views["none_rollout"]
                    views["sibling_rollout"] = (prompt + ids[start:], len(prompt), count)
                if "sampler_logprobs" in row:
                    views["sampler_logprobs"] = row["sampler_logprobs"]
                built.append(views)
        return built
