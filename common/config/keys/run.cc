#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> RunKeys(Config& c) {
  return {
      Text("run.name", &c.run.name, "Name of the run and of its folder.")
          .MayChange(),
      Text("run.output_dir",
           &c.run.output_dir,
           "Folder that holds the run folders.")
          .MayChange(),
      Any("run.seed",
          &c.run.seed,
          "Seed of the data order, the adapter's start and all sampling."),
      Range(
          "run.num_threads",
          &c.run.num_threads,
          0,
          4096,
          "Compute threads per process; 0: OMP_NUM_THREADS, else one per core "
          "(`dapd run` shares the "
          "cores among the workers of a role).")
          .MayChange(),
      Range("run.rollout_workers",
            &c.run.rollout_workers,
            1,
            256,
            "Rollout processes that `dapd run` starts.")
          .MayChange(),
      Range("run.teacher_workers",
            &c.run.teacher_workers,
            1,
            256,
            "Teacher processes that `dapd run` starts.")
          .MayChange(),
      Text("run.resume",
           &c.run.resume,
           "What a trainer does with a run folder that an earlier attempt "
           "left: go on, or refuse.",
           {"auto", "never"})
          .MayChange(),
  };
}

}  // namespace dapd
