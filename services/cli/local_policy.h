// A policy in this process, with the model under it: what `replay` and `probe
// compatibility` share.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/command_line.h"
#include "common/config/config.h"
#include "common/data/text_pipeline.h"
#include "common/model/weights/weights.h"
#include "common/training/policy.h"

namespace dapd {

// The adapters of a policy, PEFT folders or ids, as a checkpoint has them.
// Empty: as when a run of the configuration begins.
struct LocalPolicyOptions {
  std::string adapter;   // live; else lora.start_from, else a fresh one
  std::string snapshot;  // else lora.start_from, else the base
  std::string ema;       // else the live adapter

  // Adds --adapter, --snapshot and --ema.
  void AddFlags(Command& command);
  // The folder or id of the live adapter; empty: a fresh one.
  const std::string& LiveAdapter(const Config& config) const;
};

struct LocalPolicy {
  std::shared_ptr<const ModelWeights> weights;
  TextPipeline text;
  std::unique_ptr<Policy> policy;
};

// The configuration's model and prompts, and a policy at version 0. Warns where
// a term reads the moving average of an adapter that is given without one. Sets
// the number of compute threads.
absl::StatusOr<LocalPolicy> LoadLocalPolicy(const Config& config,
                                            const LocalPolicyOptions& options);

}  // namespace dapd
