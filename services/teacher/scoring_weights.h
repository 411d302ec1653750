// What a teacher scores with: the base, and the adapters of its other sets of
// weights. On a GPU the base stands in memory packed (packed_weights.h), with
// columns for one adapter, which the sets that have one take in turns. Not
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
  // A GPU's projections are given back one by one as they are packed, if nobody
  // else holds them. `lora`: what the adapters to come look like, null: there
  // will be none. Others are taken as well; the weights are packed anew then.
  ScoringWeights(ModelWeights base, const LoraConfig* lora);
  ScoringWeights(const ScoringWeights&) = delete;
  ScoringWeights& operator=(const ScoringWeights&) = delete;

  const ModelWeights& base() const { return base_; }

  // Makes the upload its set and probes it. On error the set stays as it was.
  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload);
  // Probes a set that was loaded, or the base.
  absl::StatusOr<AppliedAdapter> Probe(
      WeightSet set, const std::vector<int32_t>& probe_ids) const;

  // ForwardChunks under a set that was loaded, or the base. Throws as LibTorch
  // does.
  std::vector<ChunkStates> Forward(WeightSet set,
                                   std::span<const NextChunk> chunks,
                                   int64_t rows);

 private:
  absl::StatusOr<AppliedAdapter> ProbeWith(
      const Adapter* adapter, const std::vector<int32_t>& probe_ids) const;
  void Pack(const LoraConfig* lora);

  ModelWeights base_;
  // Null on a CPU, for a model that LayerPass does not compute, and where
  // there was no memory to pack anew.
  std::unique_ptr<PackedWeights> packed_;
  const Adapter* applied_ = nullptr;  // to packed_
  // By set; null: the base.
  std::map<WeightSet, std::unique_ptr<const Adapter>> adapters_;
};

}  // namespace dapd
