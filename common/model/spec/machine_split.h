// Decides how `dapd run` divides the GPUs of its machine among the roles:
// run.gpus, and the recommendation of role_split.h for the settings that nobody
// has made.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/config/load_config.h"
#include "common/gpus/gpu.h"
#include "common/gpus/gpu_report.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct MachineSplit {
  Config config;                   // the loaded one, with the split
  std::vector<std::string> names;  // of the GPUs of the run (GpuNames)
  std::vector<Gpu> gpus;           // the same GPUs, in the same order
  // The --set values that turn the loaded configuration into `config`.
  std::vector<std::string> overrides;
  // "8 GPUs: 4 trainer ranks on 0, 1, 2, 3; ..."; empty for a single GPU.
  std::string text;
  // GPUs that stay unused, with the reason and advice; and a notice if a
  // continued run has another split than at its beginning.
  std::vector<std::string> warnings;
};

// Returns the split of the GPUs of `report`, which must be usable. `begun`: the
// configuration of the run to be continued, if there is one. Unless the split
// is set, such a run keeps its split while there are GPUs enough, so that its
// result stays the same bit for bit. If the GPUs are too few for a process on
// each, or too small, the configuration stays as loaded, and processes share
// GPUs (gpu_shares.h); a single GPU is no exception. Each worker of a further
// teacher takes one GPU beforehand.
//   A CONFIG error if run.gpus asks for more GPUs than there are.
absl::StatusOr<MachineSplit> SplitMachine(const LoadedConfig& loaded,
                                          const std::optional<Config>& begun,
                                          const ModelConfig& model,
                                          const GpuReport& report,
                                          const FurtherTeachers& teachers = {});

// Returns the configuration of the run in the folder of `run`, or nothing if
// none can be read there.
std::optional<Config> BegunConfig(const RunConfig& run);

}  // namespace dapd
