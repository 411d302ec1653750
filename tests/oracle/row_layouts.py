"""Rows in the layouts of public data sets: their columns and types, with contents of our own."""

SYSTEM = "Think first, then answer."


def chat(*contents, form="openai", roles=None):
    """Returns messages of user and assistant in turn, or of `roles`."""
    roles = roles or [("user", "assistant")[i % 2] for i in range(len(contents))]
    keys = ("role", "content") if form == "openai" else ("from", "value")
    return [dict(zip(keys, pair, strict=True)) for pair in zip(roles, contents, strict=True)]


# Name -> rows, the keys of docs/data.md, and what is read of each row: problem, reference, answer, material.
LAYOUTS = {
    "OpenThoughts-114k": (
        [{"system": SYSTEM, "conversations": chat(f"{i} + 1?", f"<|begin_of_thought|>\n\nEasy.\n\n<|end_of_thought|>\n\n{i + 1}", form="sharegpt")}
         for i in range(3)],
        {"data.messages_column": "conversations", "prompts.system": "{system}"},
        [(f"{i} + 1?", f"<|begin_of_thought|>\n\nEasy.\n\n<|end_of_thought|>\n\n{i + 1}", None, {"columns": {"system": SYSTEM}}) for i in range(3)]),
    "OpenThoughts2-1M": (
        [{"conversations": chat("2 + 2?", "<think>\nEasy.\n</think>\n4", form="sharegpt"), "question": "2 + 2?", "source": "s", "id": i} for i in range(2)],
        {"data.messages_column": "conversations"},
        [("2 + 2?", "<think>\nEasy.\n</think>\n4", None, None)] * 2),
    "OpenThoughts3-1.2M": (
        [{"difficulty": d, "source": "s", "domain": "math",
          "conversations": chat("3 \u00d7 3?", "<think>9</think>9", form="sharegpt", roles=["human", "gpt"])} for d in (7, None)],
        {"data.messages_column": "conversations"},
        [("3 \u00d7 3?", "<think>9</think>9", None, None)] * 2),
    "NuminaMath-CoT": (
        [{"source": "olympiads", "problem": "1 + 1?", "solution": "\\boxed{2}", "messages": chat("1 + 1?", "\\boxed{2}")}],
        {}, [("1 + 1?", "\\boxed{2}", None, None)]),
    "gsm8k": (
        [{"question": "Two apples and three?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"}],
        {"data.problem_column": "question", "data.solution_column": "answer"},
        [("Two apples and three?", "2 + 3 = <<2+3=5>>5\n#### 5", "2 + 3 = <<2+3=5>>5\n#### 5", None)]),
    "OpenR1-Math-220k": (
        [{"problem": "1 + 2?", "solution": "It is 3.", "answer": "3", "problem_type": "Algebra", "uuid": "u", "is_reasoning_complete": [True, False],
          "generations": ["<think>3</think>\\boxed{3}", "<think>4"], "correctness_math_verify": [True, False], "correctness_count": 1,
          "messages": chat("1 + 2?", "<think>3</think>\\boxed{3}")}],
        {"prompts.privileged": "{prompt}\n{context}", "data.context_column": "generations"},
        [("1 + 2?", "It is 3.", "3", {"columns": {"context": '["<think>3</think>\\\\boxed{3}", "<think>4"]'}})]),
    "DeepMath-103K": (
        [{"question": "Is 1 < 2?", "final_answer": "Yes", "difficulty": 4.5, "topic": "t", "r1_solution_1": "One.\nYes", "r1_solution_2": "Two. Yes",
          "r1_solution_3": "Three. Yes"}],
        {"data.problem_column": "question", "data.solution_column": "r1_solution_1", "data.answer_column": "final_answer",
         "prompts.privileged": "{problem}\n{reference}\n{r1_solution_2}\n{difficulty}"},
        [("Is 1 < 2?", "One.\nYes", "Yes", {"columns": {"difficulty": "4.5", "r1_solution_2": "Two. Yes"}})]),
    "tulu-3-sft-mixture": (
        [{"id": "a", "messages": chat("Hi", "Hello!", "1 + 1?", "2"), "source": "s"},
         {"id": "b", "messages": chat("Be kind.", "Hi", "Hello!", roles=["system", "user", "assistant"]), "source": "s"}],
        {"data.messages_column": "messages"},
        [("1 + 1?", "2", None, {"before": chat("Hi", "Hello!")}), ("Hi", "Hello!", None, {"system": "Be kind."})]),
    "xlam-function-calling-60k": (
        [{"id": 7, "query": "Weather in Ulm?", "answers": '[{"name": "weather", "arguments": {"city": "Ulm"}}]',
          "tools": '[{"name": "weather", "description": "d", "parameters": {"city": {"type": "str", "default": null}}}]'}],
        {"data.problem_column": "query", "data.solution_column": "answers", "data.answer_column": "answers", "data.tools_column": "tools"},
        [("Weather in Ulm?", '[{"name": "weather", "arguments": {"city": "Ulm"}}]', '[{"name": "weather", "arguments": {"city": "Ulm"}}]',
          {"tools": [{"name": "weather", "description": "d", "parameters": {"city": {"type": "str", "default": None}}}]})]),
    "BFCL": (
        [{"id": "simple_0", "question": [chat("Area of 3 by 4?", roles=["user"])], "ground_truth": ["area(3, 4)"],
          "function": [{"name": "area", "description": "d",
                        "parameters": {"type": "dict", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}]}],
        {"data.messages_column": "question", "data.solution_column": "id", "data.tools_column": "function",
         "prompts.privileged": "{problem}\n{ground_truth}\n{reference}"},
        [("Area of 3 by 4?", "simple_0", None,
          {"columns": {"ground_truth": '["area(3, 4)"]'},
           "tools": [{"name": "area", "description": "d", "parameters": {"type": "dict", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                                                                         "required": ["a", "b"]}}]})]),
}
