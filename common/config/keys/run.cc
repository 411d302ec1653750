#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> RunKeys(Config& c) {
  return {
      Text("run.name", &c.run.name, "Name of the run and of its folder.")
          .MayChange(),
      Text("run.output_dir",
           &c.run.output_dir,
           "Folder that holds the run folders.")
          .IsPath()
          .MayChange(),
      Any("run.seed",
          &c.run.seed,
          "Seed of the data order, the initial adapter and all sampling."),
      Range("run.num_threads",
            &c.run.num_threads,
            0,
            4096,
            "Compute threads per process; 0: OMP_NUM_THREADS, else one per "
            "core that the process may use; the processes of a role that are "
            "started together divide them.")
          .MayChange(),
      Range("run.rollout_workers",
            &c.run.rollout_workers,
            1,
            256,
            "Rollout processes that `dapd run` starts. Without a value it "
            "starts as many as run.gpus needs.")
          .MayChange(),
      Range("run.teacher_workers",
            &c.run.teacher_workers,
            1,
            256,
            "Teacher processes that `dapd run` starts. Without a value it "
            "starts as many as run.gpus needs.")
          .MayChange(),
      Text("run.gpus",
           &c.run.gpus,
           "GPUs of the machine that `dapd run` divides among the roles: auto "
           "(all that CUDA_VISIBLE_DEVICES leaves it), or the number of them "
           "to take, from the first on. Of trainer.ranks, "
           "run.teacher_workers, run.rollout_workers and "
           "rollout.tensor_parallel it chooses those that have no value, as "
           "`dapd check --gpus` recommends.")
          .MayChange(),
      Range("run.gpu_processes",
            &c.run.gpu_processes,
            1,
            256,
            "Processes that share a GPU: each plans with an equal part of its "
            "memory. `dapd run` counts its own.")
          .MayChange(),
      Range("run.gpu_wait_seconds",
            &c.run.gpu_wait_seconds,
            0,
            1e6,
            "How long a process waits at its start for memory of its GPU that "
            "another process holds; after that it ends with exit code 1.")
          .MayChange(),
      OneOf("run.resume",
            &c.run.resume,
            "What a trainer does with a run folder that an earlier attempt "
            "left: resume the run, or refuse.")
          .MayChange(),
      Text("run.notify_url",
           &c.run.notify_url,
           "Where a JSON document is posted when the run has finished, failed "
           "or been stopped: http://..., https://..., or, for a URL that is "
           "itself a secret, file://PATH of a file, mode 600, that contains "
           "it. Empty: nowhere.")
          .MayChange(),
      Text("run.notify_secret_file",
           &c.run.notify_secret_file,
           "A file, mode 600, with a secret that is sent along: a token (as "
           "Authorization: Bearer), or a complete header (Name: value).")
          .IsPath()
          .MayChange(),
      Text("run.notify_ca_file",
           &c.run.notify_ca_file,
           "The authorities that may issue the server's certificate, in a PEM "
           "file; empty: the system's.")
          .IsPath()
          .MayChange(),
      Above("run.notify_timeout_seconds",
            &c.run.notify_timeout_seconds,
            0,
            600,
            "How long all attempts to post it may take together; after that "
            "the run ends without it.")
          .MayChange(),
      OneOf("run.stopped_worker",
            &c.run.stopped_worker,
            "Exit code of a worker that a signal ended: done (0), or "
            "interrupted (130), for supervisors that take 0 for the end of the "
            "work and start no replacement, such as a Job of Kubernetes.")
          .MayChange(),
  };
}

}  // namespace dapd
