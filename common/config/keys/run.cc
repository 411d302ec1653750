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
            "Compute threads of each process. 0: OMP_NUM_THREADS, or one "
            "thread per core that the process may use if that variable is not "
            "set; processes of one role that are started together divide the "
            "cores among them.")
          .MayChange(),
      Range("run.rollout_workers",
            &c.run.rollout_workers,
            1,
            256,
            "Number of rollout processes that `dapd run` starts. If the key is "
            "not given, `dapd run` starts as many as run.gpus needs.")
          .MayChange(),
      Range("run.teacher_workers",
            &c.run.teacher_workers,
            1,
            256,
            "Number of teacher processes that `dapd run` starts. If the key is "
            "not given, `dapd run` starts as many as run.gpus needs.")
          .MayChange(),
      Text("run.gpus",
           &c.run.gpus,
           "GPUs of the machine that `dapd run` divides among the roles: auto "
           "(all GPUs that CUDA_VISIBLE_DEVICES allows) or a number N (the "
           "first N of them). `dapd run` then chooses those of the keys "
           "trainer.ranks, run.teacher_workers, run.rollout_workers and "
           "rollout.tensor_parallel that are not given, as `dapd check --gpus` "
           "recommends.")
          .MayChange(),
      Range("run.gpu_processes",
            &c.run.gpu_processes,
            1,
            256,
            "Number of processes that share a GPU. Each of them plans with an "
            "equal part of the GPU's memory. `dapd run` counts its own "
            "processes.")
          .MayChange(),
      Range("run.gpu_wait_seconds",
            &c.run.gpu_wait_seconds,
            0,
            1e6,
            "How long a starting process waits until another process releases "
            "memory of its GPU. After that it ends with exit code 1.")
          .MayChange(),
      OneOf("run.resume",
            &c.run.resume,
            "How a trainer treats a run folder that an earlier attempt left. "
            "auto: it resumes the run. never: it refuses to start.")
          .MayChange(),
      Text("run.notify_url",
           &c.run.notify_url,
           "URL to which a JSON document is posted when the run has finished, "
           "failed or been stopped: http://... or https://..., or file://PATH "
           "if the URL itself is secret; PATH is a file with mode 600 that "
           "contains the URL. Empty: nothing is posted.")
          .MayChange(),
      Text(
          "run.notify_secret_file",
          &c.run.notify_secret_file,
          "File with mode 600 that contains a secret to send along: a token "
          "(sent as Authorization: Bearer) or a complete header (Name: value).")
          .IsPath()
          .MayChange(),
      Text("run.notify_ca_file",
           &c.run.notify_ca_file,
           "PEM file with the certificate authorities that may issue the "
           "certificate of the server in run.notify_url. Empty: the system's "
           "authorities.")
          .IsPath()
          .MayChange(),
      Above("run.notify_timeout_seconds",
            &c.run.notify_timeout_seconds,
            0,
            600,
            "Time limit for all attempts to post the document together. After "
            "that the run ends without it.")
          .MayChange(),
      OneOf("run.stopped_worker",
            &c.run.stopped_worker,
            "Exit code of a worker that a signal ended. done: 0. interrupted: "
            "130, for supervisors that take 0 for the end of the work and "
            "start no replacement, such as a Kubernetes Job.")
          .MayChange(),
  };
}

}  // namespace dapd
