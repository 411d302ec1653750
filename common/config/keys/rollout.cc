#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> RolloutKeys(Config& c) {
  return {
      Any("rollout.addresses",
          &c.rollout.addresses,
          "host:port of the rollout workers; a name with several addresses "
          "stands for all of them. file://PATH: a file with one host:port per "
          "line (# begins a comment), read again every two seconds.")
          .IsPath()
          .MayChange(),
      Text("rollout.listen",
           &c.rollout.listen,
           "Where a rollout worker listens.")
          .MayChange(),
      Range("rollout.max_new_tokens",
            &c.rollout.max_new_tokens,
            1,
            kMillion,
            "Longest answer."),
      Range("rollout.temperature",
            &c.rollout.temperature,
            0,
            100,
            "Sampling temperature; 0: greedy."),
      Above("rollout.top_p", &c.rollout.top_p, 0, 1, "Nucleus sampling."),
      Range("rollout.top_k",
            &c.rollout.top_k,
            0,
            kMillion,
            "Most probable tokens to sample from; 0: all."),
      OneOf("rollout.source",
            &c.rollout.source,
            "What takes the reference's place. reference: the data's solution. "
            "dual: a second answer of the live policy, sampled again at most 8 "
            "times while it equals the first. verified: the first of four "
            "further answers that the grader accepts."),
      OneOf(
          "rollout.unverified",
          &c.rollout.unverified,
          "With rollout.source verified, if the grader accepts none of the "
          "four: the first is used all the same, or the sample is left out of "
          "the step."),
      Range("rollout.group_size",
            &c.rollout.group_size,
            1,
            1024,
            "Answers to each problem of a step; trainer.batch_size counts "
            "answers and must be a multiple of it."),
      Range("rollout.max_staleness",
            &c.rollout.max_staleness,
            0,
            1,
            "Optimizer steps by which the policy that samples lags behind the "
            "one that is trained. 0: none, strictly on-policy. 1: exactly one "
            "from step 2 on; the workers sample a step while the one before "
            "it is trained, and teacher.streaming has no effect."),
      Range("rollout.slots",
            &c.rollout.slots,
            1,
            1024,
            "Maximum number of answers that one worker decodes in parallel.")
          .MayChange(),
      Range("rollout.kv_memory_mib",
            &c.rollout.kv_memory_mib,
            0,
            100 * kMillion,
            "Memory of a worker for keys and values. Answers take it as they "
            "grow; those that do not fit beside older ones wait, or release "
            "theirs and are continued later, with the same result. 0: half of "
            "what is available once the model has been read.")
          .MayChange(),
      Range("rollout.tensor_parallel",
            &c.rollout.tensor_parallel,
            1,
            64,
            "Processes of one machine that compute a worker's model together, "
            "each with its share of every layer and, on GPUs, with a GPU of "
            "its own. The worker starts the others.")
          .MayChange(),
  };
}

}  // namespace dapd
