#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> PromptsKeys(Config& c) {
  return {
      Text("prompts.system",
           &c.prompts.system,
           "System message of every prompt, in place of data.system and of the "
           "rows' own system messages. It may have fields. Empty: the row's "
           "own system message, or else data.system.")
          .CountsUnlessDefault(),
      Text("prompts.none",
           &c.prompts.none,
           "User message that contains a problem alone: the sampler's message, "
           "and the message of the None views. `{problem}` stands for the "
           "problem. In every prompt any other word in braces, such as "
           "`{hint}`, stands for the row's column of that name. Braces around "
           "anything but a single word are plain text, and `{{word}}` gives "
           "`{word}`.")
          .CountsUnlessDefault(),
      Text("prompts.privileged",
           &c.prompts.privileged,
           "User message that contains a problem and an answer to it, "
           "`{reference}`: the message of the Cross and Self views. `{prompt}` "
           "stands for prompts.none with the problem filled in, and "
           "`{context}` for the row's data.context_column, instead of the "
           "reference or beside it.")
          .CountsUnlessDefault(),
      Text("prompts.demonstration",
           &c.prompts.demonstration,
           "User message of demonstration_rollout, the teacher's view in SDFT. "
           "It has the fields of prompts.privileged.")
          .CountsUnlessDefault(),
      Text("prompts.probe",
           &c.prompts.probe,
           "User message of probe_rollout, the probe of Purified OPSD: "
           "`{reference}` without its problem.")
          .CountsUnlessDefault(),
      Text("prompts.sibling",
           &c.prompts.sibling,
           "User message of sibling_rollout, the self-teacher's view in SDPO. "
           "`{solution}` and `{feedback}` stand for the filled "
           "prompts.sibling_solution and prompts.sibling_feedback, or for "
           "nothing. `{problem}` and `{prompt}` mean the same as in "
           "prompts.privileged.")
          .CountsUnlessDefault(),
      Text("prompts.sibling_solution",
           &c.prompts.sibling_solution,
           "Part of prompts.sibling that shows a right answer to the same "
           "problem, `{reference}`.")
          .CountsUnlessDefault(),
      Text("prompts.sibling_feedback",
           &c.prompts.sibling_feedback,
           "Part of prompts.sibling that says what is wrong with the answer, "
           "`{feedback}`.")
          .CountsUnlessDefault(),
      Text("prompts.feedback_wrong",
           &c.prompts.feedback_wrong,
           "Feedback on an answer whose boxed result, `{answer}`, differs from "
           "the expected result. Empty: no feedback.")
          .CountsUnlessDefault(),
      Text("prompts.feedback_unboxed",
           &c.prompts.feedback_unboxed,
           "Feedback on an answer without a boxed result. Empty: no feedback.")
          .CountsUnlessDefault(),
      Text("prompts.feedback_truncated",
           &c.prompts.feedback_truncated,
           "Feedback on an answer, right or wrong, that did not end within "
           "rollout.max_new_tokens. Empty: no feedback.")
          .CountsUnlessDefault(),
      Any("prompts.thinking",
          &c.prompts.thinking,
          "Whether the model thinks before it answers, if its chat template "
          "supports that: in sampled answers, in the None views, and in every "
          "view for which no other key decides. References with a <think> "
          "block are then scored together with this block.")
          .CountsUnlessDefault(),
      Any("prompts.privileged_thinking",
          &c.prompts.privileged_thinking,
          "Whether the views of prompts.privileged, prompts.demonstration and "
          "prompts.probe are rendered with the template's thinking switched on "
          "if they show another answer than the scored one, as in the authors' "
          "release. If false, prompts.thinking decides.")
          .CountsUnlessDefault(),
      Any("prompts.special_tokens",
          &c.prompts.special_tokens,
          "Whether the sampler's prompt (prompts.none) keeps the special "
          "tokens of the chat template. The first release of OPSD drops them.")
          .CountsUnlessDefault(),
      Range("prompts.max_tokens",
            &c.prompts.max_tokens,
            0,
            kMillion,
            "Maximum number of tokens of a prompt before a rollout, in "
            "addition to data.max_prompt_tokens. 0: no additional limit.")
          .CountsUnlessDefault(),
      OneOf("prompts.truncation_side",
            &c.prompts.truncation_side,
            "Side on which a prompt that is too long is cut. right: it loses "
            "its end, which contains the instruction. left: it loses its "
            "beginning, which contains the problem.")
          .CountsUnlessDefault(),
  };
}

}  // namespace dapd
