#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> DataKeys(Config& c) {
  return {
      Text(
          "data.path",
          &c.data.path,
          "Problems with reference solutions (docs/data.md): a .parquet, "
          ".arrow, .jsonl or .json file, the JSON ones also with .gz; a folder "
          "or a data set's id on the hub, found in the local cache, both also "
          "with #CONFIGURATION:SPLIT; or a glob of files, of an id too "
          "(org/name@revision:main/train-*).")
          .IsPath()
          .MayChange(),
      Text("data.problem_column",
           &c.data.problem_column,
           "Column of the problem."),
      Text("data.solution_column",
           &c.data.solution_column,
           "Column of the reference solution."),
      Text("data.answer_column",
           &c.data.answer_column,
           "Column of the answer; may be missing from the data. Of worked text "
           "its result counts: what a last line '#### 72' or a \\boxed{} "
           "holds."),
      OneOf("data.on_bad_row",
            &c.data.on_bad_row,
            "What to do with a row that cannot be used, or whose views are too "
            "long to be trained."),
      Range("data.max_prompt_tokens",
            &c.data.max_prompt_tokens,
            1,
            kMillion,
            "Maximum number of tokens of a prompt in front of an answer; "
            "within it the sampler's prompt must leave room for "
            "rollout.max_new_tokens. Longer prompts are cut on the right, "
            "where they say what to do: check warns of rows with such a "
            "prompt."),
  };
}

std::vector<ConfigKey> EvaluationKeys(Config& c) {
  return {
      Text("evaluation.path",
           &c.evaluation.path,
           "Held-out problems, as data.path, measured before and after "
           "training; a data set of several splits needs #:SPLIT; empty: none.")
          .IsPath()
          .MayChange(),
      Range(
          "evaluation.interval",
          &c.evaluation.interval,
          0,
          1e9,
          "Steps between two evaluations within the run, whose best adapter is "
          "kept as adapter-best; 0: only before and after. Changes no result.")
          .MayChange(),
      OneOf(
          "evaluation.prompt",
          &c.evaluation.prompt,
          "The held-out problems' user message: the sampler's, or the problem "
          "and the instruction alone, as in OPSD's evaluation.")
          .MayChange(),
      Any("evaluation.thinking",
          &c.evaluation.thinking,
          "Whether the model thinks before it answers held-out problems, if "
          "its template supports that.")
          .MayChange(),
      Range("evaluation.samples",
            &c.evaluation.samples,
            1,
            1024,
            "Answers per held-out problem.")
          .MayChange(),
      Range("evaluation.temperature",
            &c.evaluation.temperature,
            0,
            100,
            "0: greedy.")
          .MayChange(),
      Above("evaluation.top_p", &c.evaluation.top_p, 0, 1, "Nucleus sampling.")
          .MayChange(),
      Range("evaluation.top_k", &c.evaluation.top_k, 0, kMillion, "0: all.")
          .MayChange(),
      Range("evaluation.max_new_tokens",
            &c.evaluation.max_new_tokens,
            0,
            kMillion,
            "0: rollout.max_new_tokens.")
          .MayChange(),
      Range("evaluation.kl_problems",
            &c.evaluation.kl_problems,
            0,
            kMillion,
            "Held-out problems on which each term's true KL is measured.")
          .MayChange(),
      Text("evaluation.marker",
           &c.evaluation.marker,
           "A text of at most 256 bytes: the share of held-out answers that "
           "contain it is measured too; empty: none.")
          .MayChange(),
  };
}

}  // namespace dapd
