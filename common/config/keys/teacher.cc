#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> TeacherKeys(Config& c) {
  return {
      Any("teacher.addresses",
          &c.teacher.addresses,
          "Addresses of the teacher workers, in the form of rollout.addresses.")
          .IsPath()
          .MayChange(),
      Text("teacher.listen",
           &c.teacher.listen,
           "Address on which a teacher worker listens, as host:port.")
          .MayChange(),
      Range("teacher.connections",
            &c.teacher.connections,
            1,
            16,
            "Number of connections from the trainer to each teacher worker. "
            "One connection carries 1 to 2 GB/s: use 2 to 4 on networks that "
            "are faster than 10 Gbit/s.")
          .MayChange(),
      OneOf("teacher.payload",
            &c.teacher.payload,
            "A teacher's result for each scored token: its last hidden state, "
            "the logits of the whole vocabulary, or the teacher.top_k most "
            "probable tokens with their probabilities."),
      Range("teacher.top_k",
            &c.teacher.top_k,
            1,
            kMillion,
            "Number of entries per token in the top_k payload. It must be at "
            "least the top_k of every term with the support teacher_top_k."),
      Range("teacher.snapshot_interval",
            &c.teacher.snapshot_interval,
            1,
            kMillion,
            "Number of optimizer steps between two refreshes of the snapshot."),
      Above("teacher.ema_rate",
            &c.teacher.ema_rate,
            0,
            1,
            "Rate of the adapter's moving average, which terms with "
            "teacher_weights ema read. After each step the average becomes (1 "
            "- rate) times itself plus rate times the adapter."),
      OneOf("teacher.ema_start",
            &c.teacher.ema_start,
            "First value of the moving average. adapter: the adapter with "
            "which the run starts. first_update: the adapter after the first "
            "update, as in the code of OPSD.")
          .CountsUnlessDefault(),
      Any("teacher.streaming",
          &c.teacher.streaming,
          "Whether teachers compute prefixes of answers while the sampler's "
          "tokens arrive. The key changes no result.")
          .MayChange(),
      Range("teacher.chunk_tokens",
            &c.teacher.chunk_tokens,
            0,
            65536,
            "Number of tokens of a view that a teacher computes at a time, "
            "with or without streaming. Up to four such chunks share a pass. "
            "0: 128 on a CPU, 1,024 on a GPU."),
      Range("teacher.prefix_memory_mib",
            &c.teacher.prefix_memory_mib,
            0,
            kMillion,
            "MiB of memory in which one teacher worker caches keys, values and "
            "hidden states of prefixes. 0: no cache.")
          .MayChange(),
      Range("teacher.mps_percentage",
            &c.teacher.mps_percentage,
            0,
            100,
            "Percentage of a GPU's multiprocessors that a teacher worker uses "
            "if NVIDIA's Multi-Process Service (MPS) runs; the rest stays free "
            "for workers that decode on the same GPU. 0: all multiprocessors.")
          .MayChange(),
  };
}

std::vector<ConfigKey> TeachersKeys(Config& c) {
  return {
      Any("teachers",
          &c.teachers,
          "Further teachers, models other than the student's own: a list of "
          "at most 8 maps {name, path, adapter, addresses, listen, "
          "metrics_listen, workers}, of which name and path are required. "
          "Terms and objective.teacher_weights read a teacher by its name. "
          "docs/teachers.md explains every field. A resumed run compares the "
          "models themselves.")
          .MayChange(),
  };
}

}  // namespace dapd
