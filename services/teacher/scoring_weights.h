// The weights of a teacher: the base, and the adapters of its other sets. On a
// GPU the base is in memory in packed form (packed_weights.h), with columns for
// one adapter; the sets that have an adapter take turns in using them. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/fast/chunk_forward.h"
#include "common/model/fast/packed_weights.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "services/teacher/scorer.h"

namespace dapd {

class ScoringWeights {
 public:
  // On a GPU, releases the projections one by one while it packs them, if
  // nobody else holds them. `lora`: the shape of the adapters to come; null:
  // none will come. An adapter of another shape is accepted as well, but the
  // weights are packed again.
  // `own`: an adapter that is part of the base, for a teacher that is a
  // fine-tuned model; null: none.
  ScoringWeights(ModelWeights base,
                 const LoraConfig* lora,
                 std::unique_ptr<const Adapter> own = nullptr);
  ScoringWeights(const ScoringWeights&) = delete;
  ScoringWeights& operator=(const ScoringWeights&) = delete;

  const ModelWeights& base() const { return base_; }

  // Makes the upload its set and probes it. On error the set stays as it was.
  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload);
  // Probes a loaded set, or the base.
  absl::StatusOr<AppliedAdapter> Probe(
      WeightSet set, const std::vector<int32_t>& probe_ids) const;

  // ForwardChunks under a loaded set, or the base. Throws LibTorch's
  // exceptions.
  std::vector<ChunkStates> Forward(WeightSet set,
                                   std::span<const NextChunk> chunks,
                                   int64_t rows);

 private:
  absl::StatusOr<AppliedAdapter> ProbeWith(
      const Adapter* adapter, const std::vector<int32_t>& probe_ids) const;
  void Pack(const LoraConfig* lora);

  ModelWeights base_;
  // Null on a CPU, for a model that LayerPass does not compute, and if there
  // was no memory to pack again.
  std::unique_ptr<PackedWeights> packed_;
  const Adapter* applied_ = nullptr;  // in packed_
  // By set; null: the weights without an adapter.
  std::map<WeightSet, std::unique_ptr<const Adapter>> adapters_;
};

}  // namespace dapd
