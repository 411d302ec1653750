#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> TeacherKeys(Config& c) {
  return {
      Any("teacher.addresses",
          &c.teacher.addresses,
          "host:port of the teacher workers, as rollout.addresses.")
          .IsPath()
          .MayChange(),
      Text("teacher.listen",
           &c.teacher.listen,
           "Where a teacher worker listens.")
          .MayChange(),
      Range("teacher.connections",
            &c.teacher.connections,
            1,
            16,
            "Connections of the trainer to each teacher worker. One carries 1 "
            "to 2 GB/s: use 2 to 4 on networks beyond 10 Gbit/s.")
          .MayChange(),
      OneOf("teacher.payload",
            &c.teacher.payload,
            "What a teacher returns per scored token."),
      Range("teacher.top_k",
            &c.teacher.top_k,
            1,
            kMillion,
            "Entries per token of the top_k payload; at least as many as a "
            "term with the support teacher_top_k takes."),
      Range("teacher.snapshot_interval",
            &c.teacher.snapshot_interval,
            1,
            kMillion,
            "Steps between two refreshes of the snapshot."),
      Above("teacher.ema_rate",
            &c.teacher.ema_rate,
            0,
            1,
            "Rate of the moving average of the adapter, for terms with "
            "teacher_weights ema: after each step it becomes (1 - rate) times "
            "itself plus rate times the adapter."),
      OneOf(
          "teacher.ema_start",
          &c.teacher.ema_start,
          "Where the moving average begins: at the adapter that the run starts "
          "from, or at the adapter after the first update, as in OPSD's code.")
          .CountsUnlessDefault(),
      Any("teacher.streaming",
          &c.teacher.streaming,
          "Whether teachers compute the prefixes of answers while the "
          "sampler's tokens arrive. Changes no result.")
          .MayChange(),
      Range("teacher.chunk_tokens",
            &c.teacher.chunk_tokens,
            0,
            65536,
            "Tokens of a view that a teacher computes at a time, with and "
            "without streaming. 0: what suits the device, 128 on a CPU, 1,024 "
            "on a GPU. Up to four such chunks share a pass."),
      Range("teacher.prefix_memory_mib",
            &c.teacher.prefix_memory_mib,
            0,
            kMillion,
            "MiB of keys, values and hidden states of prefixes that one "
            "teacher worker caches; 0: none.")
          .MayChange(),
      Range("teacher.mps_percentage",
            &c.teacher.mps_percentage,
            0,
            100,
            "Percentage of a GPU's multiprocessors that a teacher worker takes "
            "where NVIDIA's Multi-Process Service (MPS) runs, which leaves the "
            "others to workers that decode on the same GPU meanwhile; 0: all.")
          .MayChange(),
  };
}

}  // namespace dapd
