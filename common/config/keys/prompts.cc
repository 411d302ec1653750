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
      Any("prompts.privileged_thinking",
          &c.prompts.privileged_thinking,
          "Whether prompts.privileged, demonstration and probe are rendered "
          "with the template's thinking on, as released, if the answer that "
          "follows is not the one they show; off: with the empty thoughts that "
          "all other prompts have.")
          .CountsUnlessDefault(),
  };
}

}  // namespace dapd
