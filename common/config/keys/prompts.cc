#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> PromptsKeys(Config& c) {
  return {
      Text("prompts.none",
           &c.prompts.none,
           "User message of a problem alone: what the sampler is asked, and "
           "the None views. `{problem}` stands for the problem; braces around "
           "anything but one word are text, and `{{word}}` is `{word}`.")
          .CountsUnlessDefault(),
      Text("prompts.privileged",
           &c.prompts.privileged,
           "User message that shows an answer, `{reference}`, to its problem: "
           "the Cross views, and Self. `{prompt}` stands for the filled "
           "prompts.none.")
          .CountsUnlessDefault(),
      Text("prompts.demonstration",
           &c.prompts.demonstration,
           "User message of demonstration_rollout, SDFT's teacher; fields as "
           "in prompts.privileged.")
          .CountsUnlessDefault(),
      Text("prompts.probe",
           &c.prompts.probe,
           "User message of probe_rollout, Purified OPSD's probe: "
           "`{reference}` without its problem.")
          .CountsUnlessDefault(),
      Text("prompts.sibling",
           &c.prompts.sibling,
           "User message of sibling_rollout, SDPO's self-teacher: `{solution}` "
           "and `{feedback}` stand for the filled prompts.sibling_solution and "
           "prompts.sibling_feedback, or for nothing; `{problem}` and "
           "`{prompt}` as in prompts.privileged.")
          .CountsUnlessDefault(),
      Text("prompts.sibling_solution",
           &c.prompts.sibling_solution,
           "Its part that shows a right answer to the same problem, "
           "`{reference}`.")
          .CountsUnlessDefault(),
      Text("prompts.sibling_feedback",
           &c.prompts.sibling_feedback,
           "Its part that says what is wrong with the answer, `{feedback}`.")
          .CountsUnlessDefault(),
      Text("prompts.feedback_wrong",
           &c.prompts.feedback_wrong,
           "The feedback on an answer whose boxed result, `{answer}`, is not "
           "the expected one; empty: none.")
          .CountsUnlessDefault(),
      Text("prompts.feedback_unboxed",
           &c.prompts.feedback_unboxed,
           "The feedback on an answer without a boxed result; empty: none.")
          .CountsUnlessDefault(),
      Text("prompts.feedback_truncated",
           &c.prompts.feedback_truncated,
           "The feedback on an answer, right or wrong, that did not end within "
           "rollout.max_new_tokens; empty: none.")
          .CountsUnlessDefault(),
      Any("prompts.thinking",
          &c.prompts.thinking,
          "Whether the model thinks before it answers, if its template "
          "supports "
          "that: in what is sampled, in the None views, and wherever else no "
          "other key says so. References with a <think> block are then scored "
          "with it.")
          .CountsUnlessDefault(),
      Any("prompts.privileged_thinking",
          &c.prompts.privileged_thinking,
          "Whether prompts.privileged, demonstration and probe are rendered "
          "with the template's thinking on, as released, if the answer that "
          "follows is not the one they show; off: as prompts.thinking says.")
          .CountsUnlessDefault(),
      Any("prompts.special_tokens",
          &c.prompts.special_tokens,
          "Whether the sampler's prompt, which is None's, keeps the special "
          "tokens of the chat template. OPSD's first release drops them.")
          .CountsUnlessDefault(),
      Range(
          "prompts.max_tokens",
          &c.prompts.max_tokens,
          0,
          kMillion,
          "Maximum number of tokens of a prompt in front of a rollout, beside "
          "the limit of data.max_prompt_tokens; 0: no other.")
          .CountsUnlessDefault(),
      OneOf(
          "prompts.truncation_side",
          &c.prompts.truncation_side,
          "The end on which a prompt that is too long is cut: on the right, "
          "where it says what to do, or on the left, where it begins with the "
          "problem.")
          .CountsUnlessDefault(),
  };
}

}  // namespace dapd
