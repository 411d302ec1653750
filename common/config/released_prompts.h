// The prompts that the methods were released with: the defaults of the section
// `prompts`, and what presets put in their place. The templates have the form
// of prompt_template.h.
#pragma once

namespace dapd {

// The instruction of an evaluation's prompt, which consists of the problem and
// this instruction.
inline constexpr char kReleasedInstruction[] =
    "Please reason step by step, and put your final answer within \\boxed{}.";

// The message of DAPD and OPSD for the problem alone.
inline constexpr char kReleasedNone[] =
    "Problem: {problem}\n\n"
    "Please reason step by step, and put your final answer within \\boxed{}.";

// The message that shows a solution (DAPD; OPSD, Zhao et al., arXiv
// 2601.18734, from its third version on).
inline constexpr char kReleasedPrivileged[] =
    "Problem: {problem}\n\n"
    "Here is a reference solution to this problem:\n"
    "=== Reference Solution Begin ===\n"
    "{reference}\n"
    "=== Reference Solution End ===\n\n\n"
    "After reading the reference solution above, make sure you truly "
    "understand the reasoning behind each step \xE2\x80\x94 do not copy or "
    "paraphrase it. Now, using your own words and independent reasoning, "
    "derive the same final answer to the problem above. Think step by step, "
    "explore different approaches, and don't be afraid to backtrack or "
    "reconsider if something doesn't work out:\n\n"
    "Please reason step by step, and put your final answer within \\boxed{}.";

// The message of OPSD's first release.
inline constexpr char kReleasedPrivilegedOfOpsdV1[] =
    "{problem}\n\n"
    "Here is a reference solution to this problem:\n"
    "{reference}\n\n\n"
    "After understanding the reference solution and the rationale behind each "
    "step, now articulate your own step-by-step reasoning that derives the "
    "same final answer to the problem below:\n\n"
    "Please reason step by step, and put your final answer within \\boxed{}.";

// SDFT (Shenfeld et al., arXiv 2601.19897), as its code has it.
inline constexpr char kReleasedDemonstration[] =
    "\n{prompt}\n\n"
    "This is an example for a response to the question:\n"
    "{reference}\n\n"
    "Now answer with a response of your own, including the thinking "
    "process.\n";

// Purified OPSD (Shen et al., arXiv 2607.02234): the privileged prompt without
// the problem.
inline constexpr char kReleasedProbe[] =
    "Here is a reference solution to this problem:\n"
    "=== Reference Solution Begin ===\n"
    "{reference}\n"
    "=== Reference Solution End ===\n\n\n"
    "After reading the reference solution above, make sure you truly "
    "understand the reasoning behind each step \xE2\x80\x94 do not copy or "
    "paraphrase it. Now, using your own words and independent reasoning, "
    "derive the same final answer to the problem above. Think step by step, "
    "explore different approaches, and don't be afraid to backtrack or "
    "reconsider if something doesn't work out:\n\n"
    "Please reason step by step, and put your final answer within \\boxed{}.";

// SDPO (Huebotter et al., arXiv 2601.20802), as its code has them: the
// self-teacher's message, and the parts of it that are there when a sibling, or
// feedback, is.
inline constexpr char kReleasedSibling[] =
    "{prompt}{solution}{feedback}\n\n"
    "Correctly solve the original question.";
inline constexpr char kReleasedSiblingSolution[] =
    "\nCorrect solution:\n\n{reference}";
inline constexpr char kReleasedSiblingFeedback[] =
    "\nThe following is feedback from your unsuccessful earlier "
    "attempt:\n\n{feedback}";
// Its grader of mathematics says nothing of a boxed result that is wrong.
inline constexpr char kReleasedFeedbackWrong[] = "";
inline constexpr char kReleasedFeedbackUnboxed[] =
    "Your answer had the wrong format. The solution must be given in the "
    "format: \\boxed{{your_answer}}.";
inline constexpr char kReleasedFeedbackTruncated[] =
    "Your response was truncated because it exceeded the maximum length.";

}  // namespace dapd
