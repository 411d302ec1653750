"""Grades answers with math-verify (https://github.com/huggingface/Math-Verify), one a line.

Started and watched by `dapd grade --grader math-verify`, which gives this program to Python as it stands. It says
{"ready": VERSION} and then answers each line {"text", "answer"} with {"extracted", "correct"}, or {"error"} where
math-verify could not make anything of it. What takes too long is ended from outside.
"""

import importlib.metadata
import json
import logging
import os
import resource
import sys

MEMORY_BYTES = 4 << 30  # of address space: an answer such as 9^{9^{9^9}} must not take the machine with it
RECURSION = 10_000


def main():
    # The channel is ours alone: whatever a library prints goes to stderr.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(RECURSION)
    logging.disable(logging.CRITICAL)

    def say(message):
        channel.write(json.dumps(message) + "\n")

    try:
        import math_verify

        say({"ready": importlib.metadata.version("math-verify")})
    except ImportError as error:
        say({"error": f"{error}; install deploy/requirements-grading.txt"})
        return 1
    for line in sys.stdin:
        row = json.loads(line)
        try:
            say(grade(math_verify, row["text"], row["answer"]))
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"[:500]})
    return 0


def grade(math_verify, text, answer):
    # A bare answer would be read as prose; what is boxed is read as mathematics.
    expected = math_verify.parse(answer if "\\boxed" in answer else "\\boxed{" + answer + "}")
    given = math_verify.parse(text)
    texts = [each for each in given if isinstance(each, str)]
    return {"extracted": texts[-1] if texts else None, "correct": bool(math_verify.verify(expected, given))}


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")
    sys.exit(main())
