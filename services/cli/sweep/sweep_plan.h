// SweepPlan: the runs of a sweep, from its YAML file:
//
//   name: rates              # the runs lie in <run.output_dir>/rates/
//   config: configs/quickstart.yaml
//   set:                     # for every run, on top of the configuration
//     trainer.steps: 60
//   grid:                    # every combination of these, or ...
//     trainer.learning_rate: [1.0e-4, 5.0e-4]
//     objective.preset: [dapd, opsd]
//   list:                    # ... these, one by one
//     - {name: base}
//     - {name: clipped, set: {objective.component_clip: 0.05}}
//   seeds: [1, 2, 3]         # each setting with each; without: run.seed
//   parallel: 4              # side by side, at most; without: 1, or as many as
//   memory_gib: 64           # fit in this by the plan that `dapd check` prints
//
// Paths are relative to the working directory, as in a configuration. The sweep
// gives run.name, and run.seed where there are seeds; run.output_dir is the
// same for all runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"

namespace dapd {

struct SweepRun {
  std::string name;  // of the folder: "learning_rate-0.0001-seed-2"
  std::vector<std::string> overrides;  // as for --set
  Config config;                       // with the overrides
  std::string folder;
  double memory_bytes = 0.0;  // of all its processes, by PlanMemory

  // Whether an earlier call finished the run.
  bool done = false;
};

struct SweepPlan {
  std::string config_path;
  std::string folder;  // of the runs
  std::vector<SweepRun> runs;
  int64_t parallel = 1;       // side by side, at most
  double memory_bytes = 0.0;  // of all runs side by side; 0: no limit
};

// Reads the file and checks every run: its configuration, its model, the
// adapter that it starts from, that an existing folder holds a run of these
// settings, and that no two runs have the same values. `overrides` apply to all
// runs, and win. Reports all mistakes at once; exit code kConfig, or kData for
// a model or an adapter that cannot be read.
absl::StatusOr<SweepPlan> ReadSweep(const std::string& path,
                                    const std::vector<std::string>& overrides);

}  // namespace dapd
