#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> DataKeys(Config& c) {
  return {
      Text("data.path",
           &c.data.path,
           "Problems with reference solutions (docs/data.md): a .parquet, "
           ".arrow, .jsonl or .json file (the latter two also with .gz); a "
           "folder, or the id of a data set on the hub, which is looked up in "
           "the local cache (both also with #CONFIGURATION:SPLIT); or a glob "
           "of files, also below an id (org/name@revision:main/train-*).")
          .IsPath()
          .MayChange(),
      Text("data.problem_column",
           &c.data.problem_column,
           "Name of the column with the problem."),
      Text("data.solution_column",
           &c.data.solution_column,
           "Name of the column with the reference solution."),
      Text("data.answer_column",
           &c.data.answer_column,
           "Name of the column with the answer. The data may lack this column. "
           "If the column contains worked text, only its result counts: the "
           "number in a last line '#### 72', or the content of a \\boxed{}."),
      Text("data.teacher_column",
           &c.data.teacher_column,
           "Name of the column with the name of each row's teacher, for terms "
           "with teacher_weights row: one of `teachers`; base or nothing: the "
           "student's own base. Empty: no such column.")
          .CountsUnlessDefault(),
      Text("data.context_column",
           &c.data.context_column,
           "Name of the column with the text that `{context}` in "
           "prompts.privileged and prompts.demonstration stands for: what the "
           "teacher is shown instead of the reference, or beside it.")
          .CountsUnlessDefault(),
      Text("data.messages_column",
           &c.data.messages_column,
           "Name of the column with a conversation: a list of messages with "
           "`role` and `content` (OpenAI) or `from` and `value` (ShareGPT), or "
           "its JSON text. The last user message is the problem, the assistant "
           "message that ends the conversation is the reference, and all other "
           "messages stand in every prompt. data.problem_column is not read "
           "then, and data.solution_column only for conversations that do not "
           "end with an assistant message. Empty: the rows have no "
           "conversations.")
          .CountsUnlessDefault(),
      Text("data.tools_column",
           &c.data.tools_column,
           "Name of the column with the list of tool definitions that the chat "
           "template gets, or its JSON text. A row without a value has no "
           "tools. Empty: no row has tools.")
          .CountsUnlessDefault(),
      Text("data.system",
           &c.data.system,
           "System message of all rows whose conversation does not bring its "
           "own, taken as it is. Empty: none. prompts.system replaces it.")
          .CountsUnlessDefault(),
      OneOf("data.on_bad_row",
            &c.data.on_bad_row,
            "Action if a row cannot be used, or if its views are too long for "
            "training. fail: the run refuses to start. skip: the row is left "
            "out, with a warning."),
      Range("data.max_prompt_tokens",
            &c.data.max_prompt_tokens,
            1,
            kMillion,
            "Maximum number of tokens of a prompt before an answer. The "
            "sampler's prompt must also leave room for rollout.max_new_tokens "
            "within this limit. Longer prompts are cut on the side that "
            "prompts.truncation_side names; `dapd check` warns of rows with "
            "such a prompt."),
  };
}

std::vector<ConfigKey> EvaluationKeys(Config& c) {
  return {
      Text("evaluation.path",
           &c.evaluation.path,
           "Held-out problems that are measured before and after training, in "
           "the form of data.path. A data set with several splits needs "
           "#:SPLIT. Empty: no evaluation.")
          .IsPath()
          .MayChange(),
      Range("evaluation.interval",
            &c.evaluation.interval,
            0,
            1e9,
            "Number of steps between two evaluations during the run. The best "
            "adapter of them is kept as adapter-best. 0: evaluations only "
            "before and after training. The key changes no result.")
          .MayChange(),
      OneOf("evaluation.prompt",
            &c.evaluation.prompt,
            "User message of held-out problems. training: the sampler's "
            "message. plain: the problem and the instruction alone, as in the "
            "evaluation of OPSD.")
          .MayChange(),
      Any("evaluation.thinking",
          &c.evaluation.thinking,
          "Whether the model thinks before it answers held-out problems, if "
          "its chat template supports that.")
          .MayChange(),
      Range("evaluation.samples",
            &c.evaluation.samples,
            1,
            1024,
            "Number of answers to each held-out problem.")
          .MayChange(),
      Range("evaluation.temperature",
            &c.evaluation.temperature,
            0,
            100,
            "Sampling temperature of held-out answers. 0: greedy decoding.")
          .MayChange(),
      Above("evaluation.top_p",
            &c.evaluation.top_p,
            0,
            1,
            "Nucleus sampling of held-out answers; see rollout.top_p.")
          .MayChange(),
      Range("evaluation.top_k",
            &c.evaluation.top_k,
            0,
            kMillion,
            "Held-out answers are sampled from this number of most probable "
            "tokens. 0: from all tokens.")
          .MayChange(),
      Range("evaluation.max_new_tokens",
            &c.evaluation.max_new_tokens,
            0,
            kMillion,
            "Maximum number of tokens of a held-out answer. 0: "
            "rollout.max_new_tokens.")
          .MayChange(),
      Range("evaluation.kl_problems",
            &c.evaluation.kl_problems,
            0,
            kMillion,
            "Number of held-out problems on which the true KL (without the "
            "clip) of each term is measured.")
          .MayChange(),
      Text("evaluation.marker",
           &c.evaluation.marker,
           "Text of at most 256 bytes. The share of held-out answers that "
           "contain it is measured. Empty: no such measurement.")
          .MayChange(),
      Any("evaluation.claims",
          &c.evaluation.claims,
          "Whether to measure how probable it is that an answer claims to "
          "know its result from memory or a reference, on the problems of "
          "evaluation.kl_problems (docs/illusion.md). It costs forward passes "
          "over some thousands of tokens for each of these problems.")
          .MayChange(),
  };
}

}  // namespace dapd
