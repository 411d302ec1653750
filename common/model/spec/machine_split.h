// How `dapd run` divides the GPUs of its machine among the roles: run.gpus, and
// the recommendation of role_split.h for what nobody has set.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/config/load_config.h"
#include "common/gpus/gpu.h"
#include "common/gpus/gpu_report.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct MachineSplit {
  Config config;                   // as it was loaded, with the split
  std::vector<std::string> names;  // of the GPUs that the run has (GpuNames)
  std::vector<Gpu> gpus;           // the same GPUs, in the same order
  // The --set values that make `config` out of what was loaded.
  std::vector<std::string> overrides;
  // "8 GPUs: 4 trainer ranks on 0, 1, 2, 3; ..."; empty for a single GPU.
  std::string text;
  // GPUs that stay unused, with the reason and what to set; and that a run goes
  // on with another split than it began with.
  std::vector<std::string> warnings;
};

// The split of the GPUs of `report`, which can be used. `begun`: the
// configuration of the run that goes on in its folder, if there is one: where
// nothing else is set it keeps its split as long as there are GPUs enough, so
// that its result stays the same bit for bit. Where the GPUs are too few for a
// process on each, or too small, the configuration stays as it was loaded, and
// processes share GPUs (gpu_shares.h); a single GPU is no exception.
//   A CONFIG error if run.gpus asks for more GPUs than there are.
absl::StatusOr<MachineSplit> SplitMachine(const LoadedConfig& loaded,
                                          const std::optional<Config>& begun,
                                          const ModelConfig& model,
                                          const GpuReport& report);

// The configuration of the run in the folder of `run`; nothing if there is none
// that can be read.
std::optional<Config> BegunConfig(const RunConfig& run);

}  // namespace dapd
