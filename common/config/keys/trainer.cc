#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> TrainerKeys(Config& c) {
  return {
      Text("trainer.listen",
           &c.trainer.listen,
           "Where the trainer answers `dapd status`.")
          .MayChange(),
      Range("trainer.batch_size",
            &c.trainer.batch_size,
            1,
            kMillion,
            "Samples per optimizer step: one per problem, or one per answer if "
            "rollout.group_size makes groups of them."),
      Range("trainer.micro_batch_size",
            &c.trainer.micro_batch_size,
            1,
            kMillion,
            "Samples that share one mean over tokens."),
      Range("trainer.steps",
            &c.trainer.steps,
            1,
            1e9,
            "Optimizer steps of the run.")
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
            "Steps over which the learning rate falls linearly to zero."),
      Above("trainer.max_grad_norm",
            &c.trainer.max_grad_norm,
            0,
            kInfinity,
            "Clip of the global gradient norm; .inf: none."),
      Range("trainer.activation_memory_mib",
            &c.trainer.activation_memory_mib,
            -1,
            kMillion,
            "MiB of activations that a pass keeps for the backward pass, which "
            "recomputes the layers that do not fit; 0 keeps only each layer's "
            "input. -1: on a GPU what its memory leaves (`dapd check` says how "
            "much), on a CPU 1024. Changes no result.")
          .MayChange(),
      Range(
          "trainer.pack_tokens",
          &c.trainer.pack_tokens,
          1,
          kMillion,
          "Maximum number of tokens of several samples that share a pass "
          "through the model; fewer on a GPU without the memory for them. A "
          "row of the data with a longer view is a bad row (data.on_bad_row)."),
      Any("trainer.train_while_sampling",
          &c.trainer.train_while_sampling,
          "Whether a micro-batch is trained as soon as its answers are scored, "
          "while later ones are still sampled, and forward passes are run "
          "before that. Changes no result.")
          .MayChange(),
      Range(
          "trainer.ahead_memory_mib",
          &c.trainer.ahead_memory_mib,
          -1,
          kMillion,
          "MiB for what is trained ahead: gradients of micro-batches that wait "
          "for an earlier one, in up to half of it, and forward passes of "
          "references and unfinished answers. 0: none. -1: on a GPU what "
          "activations leave of its memory, on a CPU 2048. Changes no result.")
          .MayChange(),
      Range("trainer.chunk_tokens",
            &c.trainer.chunk_tokens,
            0,
            kMillion,
            "Tokens of prompt and answer that pass forward together, ahead or "
            "not, if the activations of the longest answers' pack take more "
            "than 4 GiB, or on a GPU more than its memory leaves; no layer "
            "keeps its activations then. A GPU takes at least 2048. 0: the "
            "whole answer, once it has arrived."),
      Above("trainer.rpc_timeout_seconds",
            &c.trainer.rpc_timeout_seconds,
            0,
            kMillion,
            "Time a worker has for one rollout or score; where answers may be "
            "longer than 2,400 tokens, longer in proportion.")
          .MayChange(),
      Above("trainer.peer_timeout_seconds",
            &c.trainer.peer_timeout_seconds,
            0,
            kMillion,
            "Time without any usable worker before the run ends.")
          .MayChange(),
      Range("trainer.ranks",
            &c.trainer.ranks,
            1,
            4096,
            "Trainer processes that share each batch; `dapd run --ranks` "
            "starts them.")
          .MayChange(),
      Range("trainer.rank",
            &c.trainer.rank,
            0,
            4095,
            "Number of this process among them; rank 0 records and saves.")
          .MayChange(),
      Range("trainer.ranks_per_machine",
            &c.trainer.ranks_per_machine,
            0,
            4096,
            "N: `dapd-trainer` starts the N ranks of its machine or pod, with "
            "a GPU each, and trainer.ranks and trainer.rank follow from "
            "trainer.machines and trainer.machine. 0: it is one rank.")
          .MayChange(),
      Range("trainer.machines",
            &c.trainer.machines,
            1,
            4096,
            "Machines or pods that have trainer.ranks_per_machine ranks each.")
          .MayChange(),
      Range("trainer.machine",
            &c.trainer.machine,
            0,
            4095,
            "Number of this machine among them; rank 0 is on machine 0.")
          .MayChange(),
      Text("trainer.rendezvous",
           &c.trainer.rendezvous,
           "host:port at which rank 0 listens and the others find it.")
          .MayChange(),
      Above(
          "trainer.rank_timeout_seconds",
          &c.trainer.rank_timeout_seconds,
          0,
          kMillion,
          "How long rank 0 waits for the others inside a step, but for their "
          "answers, whose tasks have deadlines of their own; and how long the "
          "processes of a rollout worker (rollout.tensor_parallel) wait for "
          "each other.")
          .MayChange(),
      Any("trainer.shard_base",
          &c.trainer.shard_base,
          "Whether each rank holds only its share of the base's layers and all "
          "of them gather each layer while the one before it is computed: for "
          "a base that leaves no room on one device. Changes no result, but "
          "nothing is trained while answers are sampled.")
          .MayChange(),
      OneOf("trainer.when_done",
            &c.trainer.when_done,
            "At the end of the run: exit, or serve status and metrics until a "
            "signal, for supervisors that restart whatever exits.")
          .MayChange(),
      Range("trainer.timeline_steps",
            &c.trainer.timeline_steps,
            0,
            1000,
            "How many of the first steps of this process timeline.json in the "
            "run folder covers: what trainer and workers did when "
            "(docs/watching.md); 0: none. Changes no result.")
          .MayChange(),
  };
}

std::vector<ConfigKey> CheckpointKeys(Config& c) {
  return {
      Range("checkpoint.interval",
            &c.checkpoint.interval,
            1,
            1e9,
            "Steps between two checkpoints.")
          .MayChange(),
      Range("checkpoint.keep",
            &c.checkpoint.keep,
            0,
            kMillion,
            "Checkpoints that are kept; 0: all.")
          .MayChange(),
      OneOf("checkpoint.on_write_error",
            &c.checkpoint.on_write_error,
            "What happens when the disk refuses a write: training pauses until "
            "it succeeds, continues without it, or ends.")
          .MayChange(),
      Text("checkpoint.copy_to",
           &c.checkpoint.copy_to,
           "URL under which a copy of the run is kept, in a folder with its "
           "name, after each checkpoint: a folder, s3://BUCKET/PATH or "
           "gs://BUCKET/PATH; `dapd restore` brings it back. Empty: none. "
           "Credentials come from the environment.")
          .IsPath()
          .MayChange(),
      Text("checkpoint.copy_python",
           &c.checkpoint.copy_python,
           "The Python, with deploy/requirements-copy.txt installed, that "
           "copies; empty: that of .deps/venv beside the build, or python3.")
          .IsPath()
          .MayChange(),
      Above("checkpoint.copy_timeout_seconds",
            &c.checkpoint.copy_timeout_seconds,
            0,
            kMillion,
            "Time without progress after which a copy is restarted.")
          .MayChange(),
      Range("checkpoint.copy_wait_seconds",
            &c.checkpoint.copy_wait_seconds,
            0,
            kMillion,
            "How long the end of a run waits for its last copy; one that is "
            "stopped waits at most 20 s.")
          .MayChange(),
  };
}

}  // namespace dapd
