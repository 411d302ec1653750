// LocalPolicy: a policy in this process, its base model and its teachers, for
// `replay` and `probe compatibility`.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/command_line.h"
#include "common/config/config.h"
#include "common/data/text_pipeline.h"
#include "common/model/weights/weights.h"
#include "common/training/policy.h"
#include "services/cli/local_teachers.h"

namespace dapd {

// The adapters of a policy, PEFT folders or ids, as in a checkpoint. An empty
// name stands for the adapter with which a run of the configuration begins.
struct LocalPolicyOptions {
  std::string adapter;   // live; empty: lora.start_from or a fresh one
  std::string snapshot;  // empty: lora.start_from or the base
  std::string ema;       // empty: the live adapter

  // Adds --adapter, --snapshot and --ema.
  void AddFlags(Command& command);
  // Returns the folder or id of the live adapter; empty: a fresh adapter.
  const std::string& LiveAdapter(const Config& config) const;
};

struct LocalPolicy {
  std::shared_ptr<const ModelWeights> weights;
  TextPipeline text;
  std::unique_ptr<Policy> policy;
  std::unique_ptr<const LocalTeachers> teachers;
};

// Loads the configuration's model and prompts, and a policy at version 0. Warns
// if a term reads the moving average and --adapter is given without --ema. Sets
// the number of compute threads.
absl::StatusOr<LocalPolicy> LoadLocalPolicy(const Config& config,
                                            const LocalPolicyOptions& options);

}  // namespace dapd
