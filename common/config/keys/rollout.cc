#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> RolloutKeys(Config& c) {
  return {
      Any("rollout.addresses",
          &c.rollout.addresses,
          "Addresses of the rollout workers, as host:port. A host name with "
          "several IP addresses stands for all of them. file://PATH names a "
          "file with one host:port per line (# begins a comment), which is "
          "read again every two seconds.")
          .IsPath()
          .MayChange(),
      Text("rollout.listen",
           &c.rollout.listen,
           "Address on which a rollout worker listens, as host:port.")
          .MayChange(),
      Range("rollout.max_new_tokens",
            &c.rollout.max_new_tokens,
            1,
            kMillion,
            "Maximum number of tokens of an answer."),
      Range("rollout.temperature",
            &c.rollout.temperature,
            0,
            100,
            "Sampling temperature. 0: greedy decoding."),
      Above("rollout.top_p",
            &c.rollout.top_p,
            0,
            1,
            "Nucleus sampling: tokens are sampled from the smallest set of "
            "most probable tokens whose probabilities add up to at least this "
            "value. 1: from all tokens."),
      Range("rollout.top_k",
            &c.rollout.top_k,
            0,
            kMillion,
            "Tokens are sampled from this number of most probable tokens. 0: "
            "from all tokens."),
      OneOf("rollout.source",
            &c.rollout.source,
            "Text in the place of the reference. reference: the solution in "
            "the data. dual: a second answer of the live policy, which is "
            "sampled again at most 8 times while it equals the first. "
            "verified: the first of four further answers that the grader "
            "accepts."),
      OneOf("rollout.unverified",
            &c.rollout.unverified,
            "Action with rollout.source verified if the grader accepts none of "
            "the four answers. first: the first of them is used. skip: the "
            "sample is left out of the step."),
      Range("rollout.group_size",
            &c.rollout.group_size,
            1,
            1024,
            "Number of answers to each problem of a step. trainer.batch_size "
            "counts answers and must be a multiple of this number."),
      Range("rollout.max_staleness",
            &c.rollout.max_staleness,
            0,
            1,
            "Number of optimizer steps by which the sampling policy lags "
            "behind the trained policy. 0: none (strictly on-policy). 1: "
            "exactly one from step 2 on; workers then sample a step while the "
            "step before it is trained, and teacher.streaming has no effect."),
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
            "MiB of memory for keys and values in one worker. Answers take "
            "memory as they grow. An answer that does not fit beside older "
            "answers waits, or is moved to the host's memory and continued "
            "later, with the same result. 0: on a GPU that no other process "
            "uses, what is free after the model has been loaded, without the "
            "memory that decoding still needs and a twentieth of the GPU; "
            "otherwise half of what is free.")
          .MayChange(),
      OneOf(
          "rollout.kv_precision",
          &c.rollout.kv_precision,
          "Precision of keys and values. model: that of the model. float8: 8 "
          "bits (e4m3 with a scale for each token and head), which takes half "
          "of the memory and changes the log-probabilities a little. A worker "
          "that answers for `dapd eval` or `dapd serve` may have it; a run "
          "that trains refuses it.")
          .MayChange(),
      Range("rollout.tensor_parallel",
            &c.rollout.tensor_parallel,
            1,
            64,
            "Number of processes on one machine that compute the model of one "
            "worker together. Each process has a share of every layer and, on "
            "GPUs, a GPU of its own. The worker starts the other processes.")
          .MayChange(),
  };
}

}  // namespace dapd
