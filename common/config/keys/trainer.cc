#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> TrainerKeys(Config& c) {
  return {
      Text("trainer.listen",
           &c.trainer.listen,
           "Address on which the trainer answers `dapd status`, as host:port.")
          .MayChange(),
      Range("trainer.batch_size",
            &c.trainer.batch_size,
            1,
            kMillion,
            "Number of samples per optimizer step. A sample is one problem "
            "with one answer; rollout.group_size says how many samples share a "
            "problem."),
      Range(
          "trainer.micro_batch_size",
          &c.trainer.micro_batch_size,
          1,
          kMillion,
          "Number of samples over whose tokens the loss is averaged together."),
      Range("trainer.steps",
            &c.trainer.steps,
            1,
            1e9,
            "Number of optimizer steps of the run.")
          .MayChange(),
      Above("trainer.learning_rate",
            &c.trainer.learning_rate,
            0,
            10,
            "Learning rate of the first step."),
      Range("trainer.schedule_steps",
            &c.trainer.schedule_steps,
            1,
            1e9,
            "Number of steps over which the learning rate falls linearly to "
            "zero."),
      Above("trainer.max_grad_norm",
            &c.trainer.max_grad_norm,
            0,
            kInfinity,
            "Limit of the global gradient norm; larger gradients are scaled "
            "down to it. .inf: no limit."),
      Range(
          "trainer.activation_memory_mib",
          &c.trainer.activation_memory_mib,
          -1,
          kMillion,
          "MiB of activations that a forward pass keeps for the backward pass, "
          "which computes the other layers again. 0: only the input of each "
          "layer is kept. -1: on a GPU, all memory that is left over (`dapd "
          "check` prints how much); on a CPU, 1024. On a CPU, and with "
          "model.deterministic, the key changes no result; on a GPU it may "
          "decide whether answers pass in chunks (trainer.chunk_tokens), which "
          "changes results within rounding.")
          .MayChange(),
      Range(
          "trainer.pack_tokens",
          &c.trainer.pack_tokens,
          1,
          kMillion,
          "Maximum number of tokens, of several samples together, that share a "
          "pass through the model; a GPU with too little memory takes fewer. A "
          "row of the data with a longer view is a bad row (data.on_bad_row)."),
      Any("trainer.train_while_sampling",
          &c.trainer.train_while_sampling,
          "Whether a micro-batch is trained as soon as its answers are scored, "
          "while later answers are still being sampled, and whether forward "
          "passes run even earlier. On a CPU, and with model.deterministic, "
          "the key changes no result; on a GPU it may decide whether answers "
          "pass in chunks (trainer.chunk_tokens), which changes results within "
          "rounding.")
          .MayChange(),
      Range(
          "trainer.ahead_memory_mib",
          &c.trainer.ahead_memory_mib,
          -1,
          kMillion,
          "MiB of memory for work that is done ahead: up to half of it for "
          "gradients of micro-batches that wait for an earlier micro-batch, "
          "the rest for forward passes of references and unfinished answers. "
          "0: no work is done ahead. -1: on a GPU, the memory that activations "
          "leave free; on a CPU, 2048. On a CPU, and with model.deterministic, "
          "the key changes no result; on a GPU it may decide whether answers "
          "pass in chunks (trainer.chunk_tokens), which changes results within "
          "rounding.")
          .MayChange(),
      Range("trainer.chunk_tokens",
            &c.trainer.chunk_tokens,
            0,
            kMillion,
            "Number of tokens of prompt and answer in one forward pass, ahead "
            "of time or not, if the activations of the pack with the longest "
            "answers exceed 4 GiB, or on a GPU the free memory. No layer keeps "
            "its activations then. A GPU uses at least 2048. 0: the whole "
            "answer in one pass, after it has arrived."),
      Above("trainer.rpc_timeout_seconds",
            &c.trainer.rpc_timeout_seconds,
            0,
            kMillion,
            "Time limit of a worker for one rollout or one score. It grows in "
            "proportion if rollout.max_new_tokens allows answers of more than "
            "2,400 tokens.")
          .MayChange(),
      Above("trainer.peer_timeout_seconds",
            &c.trainer.peer_timeout_seconds,
            0,
            kMillion,
            "Time without any usable worker after which the run ends.")
          .MayChange(),
      Range("trainer.ranks",
            &c.trainer.ranks,
            1,
            4096,
            "Number of trainer processes that share each batch. `dapd run "
            "--ranks` starts them.")
          .MayChange(),
      Range("trainer.rank",
            &c.trainer.rank,
            0,
            4095,
            "Number of this process among the ranks. Rank 0 records the run "
            "and saves it.")
          .MayChange(),
      Range(
          "trainer.ranks_per_machine",
          &c.trainer.ranks_per_machine,
          0,
          4096,
          "Number of ranks that `dapd-trainer` starts on its machine or in its "
          "pod, each with a GPU of its own. trainer.ranks and trainer.rank "
          "then follow from trainer.machines and trainer.machine. 0: "
          "`dapd-trainer` is itself a rank and starts no others.")
          .MayChange(),
      Range("trainer.machines",
            &c.trainer.machines,
            1,
            4096,
            "Number of machines or pods, each with trainer.ranks_per_machine "
            "ranks.")
          .MayChange(),
      Range("trainer.machine",
            &c.trainer.machine,
            0,
            4095,
            "Number of this machine among the machines. Rank 0 runs on machine "
            "0.")
          .MayChange(),
      Text("trainer.rendezvous",
           &c.trainer.rendezvous,
           "Address on which rank 0 listens for the other ranks, as host:port.")
          .MayChange(),
      Above("trainer.rank_timeout_seconds",
            &c.trainer.rank_timeout_seconds,
            0,
            kMillion,
            "How long rank 0 waits for the other ranks inside a step, except "
            "for their answers, whose tasks have their own deadlines. It is "
            "also the time for which the processes of one rollout worker "
            "(rollout.tensor_parallel) wait for each other.")
          .MayChange(),
      Any("trainer.shard_base",
          &c.trainer.shard_base,
          "Whether each rank holds only its share of the base model's layers, "
          "so that a base model fits that leaves too little room on one "
          "device. All ranks gather each layer while the layer before it is "
          "computed. Nothing is trained while answers are sampled. On a CPU, "
          "and with model.deterministic, the key changes no result; on a GPU "
          "the memory that it leaves may change packs and chunks "
          "(trainer.pack_tokens, trainer.chunk_tokens), which changes results "
          "within rounding.")
          .MayChange(),
      OneOf("trainer.logits_precision",
            &c.trainer.logits_precision,
            "Precision to which the loss rounds the logits of its models. "
            "bfloat16 is the precision of the released code. On a GPU the loss "
            "then reads half as many bytes, and everywhere its gradients are "
            "less exact, most of all where student and target agree "
            "(docs/objective.md). It needs model.precision bfloat16.")
          .CountsUnlessDefault(),
      OneOf("trainer.when_done",
            &c.trainer.when_done,
            "Action of the trainer at the end of the run. exit: it exits. "
            "serve: it serves status and metrics until a signal arrives, for "
            "supervisors that restart every process that exits.")
          .MayChange(),
      Range("trainer.timeline_steps",
            &c.trainer.timeline_steps,
            0,
            1000,
            "Number of steps, from the first step of this process on, that "
            "timeline.json in the run folder covers. It shows what trainer and "
            "workers did at which time (docs/watching.md). 0: no timeline. The "
            "key changes no result.")
          .MayChange(),
  };
}

std::vector<ConfigKey> CheckpointKeys(Config& c) {
  return {
      Range("checkpoint.interval",
            &c.checkpoint.interval,
            1,
            1e9,
            "Number of steps between two checkpoints.")
          .MayChange(),
      Range("checkpoint.keep",
            &c.checkpoint.keep,
            0,
            kMillion,
            "Number of newest checkpoints that are kept. 0: all.")
          .MayChange(),
      OneOf("checkpoint.on_write_error",
            &c.checkpoint.on_write_error,
            "Action when the disk refuses a write. pause: training pauses "
            "until the write succeeds. continue: training continues without "
            "the file. fail: the run ends.")
          .MayChange(),
      Text("checkpoint.copy_to",
           &c.checkpoint.copy_to,
           "Place for a copy of the run, which is updated after each "
           "checkpoint, in a folder with the name of the run: a folder, "
           "s3://BUCKET/PATH or gs://BUCKET/PATH. `dapd restore` copies the "
           "run back. Credentials come from the environment. Empty: no copy.")
          .IsPath()
          .MayChange(),
      Text("checkpoint.copy_python",
           &c.checkpoint.copy_python,
           "Python interpreter that makes the copies, with the packages of "
           "deploy/requirements-copy.txt. Empty: the interpreter of .deps/venv "
           "beside the build, or python3.")
          .IsPath()
          .MayChange(),
      Above("checkpoint.copy_timeout_seconds",
            &c.checkpoint.copy_timeout_seconds,
            0,
            kMillion,
            "Time without progress after which a copy is started again.")
          .MayChange(),
      Range("checkpoint.copy_wait_seconds",
            &c.checkpoint.copy_wait_seconds,
            0,
            kMillion,
            "How long a run that ends waits for its last copy. A run that is "
            "stopped waits at most 20 s.")
          .MayChange(),
  };
}

}  // namespace dapd
