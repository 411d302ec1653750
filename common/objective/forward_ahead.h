// ForwardAhead runs forward passes of a step's micro-batches while the answers
// are still being sampled. The live policy is fixed for the whole step, so no
// pass is stale. The views of a reference are known from the start, and
// none_rollout is known as far as the sampler has come.
//
// Passes and chunks are found again by their tokens. They have the bits that
// running them later would give, because packs and chunks are the same. So
// results depend neither on timing nor on the memory limit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "common/base/byte_budget.h"
#include "common/model/training_pass.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/objective/pack_plan.h"
#include "common/objective/view_pass.h"

namespace dapd {

// Serves one step, during which the adapter must not change. Not thread-safe.
class ForwardAhead {
 public:
  // All arguments must outlive this object, which takes the memory of kept
  // passes from `memory`.
  ForwardAhead(const ModelWeights& weights,
               const Adapter& live,
               const std::vector<Term>& terms,
               const PassLimits& limits,
               ByteBudget& memory);
  ~ForwardAhead() { Clear(); }
  ForwardAhead(const ForwardAhead&) = delete;
  ForwardAhead& operator=(const ForwardAhead&) = delete;

  // Takes the samples of a step by micro-batch, in the order of their training,
  // with the views of each sample that need no rollout.
  void PlanReferences(const std::vector<std::vector<Views>>& micro_batches);
  // Takes all trainable views of a micro-batch's samples; an answer without a
  // token to score has no pass. The passes of this micro-batch come next. They
  // include passes of references that were not known before (rollout.source).
  void PlanRollouts(size_t micro_batch, const std::vector<Views>& samples);

  // Runs the next planned pass. Returns false if no pass is left or memory is
  // short.
  bool AdvancePass();
  // Runs the next chunk of the none_rollout that begins with `ids`. Returns
  // false if no whole chunk is left or memory is short.
  bool AdvanceRollout(std::span<const int32_t> ids);

  // Returns the pass of a pack over `samples`, whose views are `packed`: the
  // pass that was run ahead, or else a pass that is run now.
  std::unique_ptr<TrainingPass> Take(std::span<const PackPart> pack,
                                     std::span<const Views* const> samples,
                                     const PackedViews& packed);

  // Drops everything kept for a micro-batch that was trained.
  void Forget(size_t micro_batch);

  // Drops everything kept and runs nothing ahead any more, since the memory of
  // a device has run out. Returns whether anything was dropped.
  bool GiveUp();

  // Returns the number of tokens that passed forward ahead of their training.
  int64_t tokens() const { return tokens_; }

 private:
  struct PlannedPass {
    size_t micro_batch = 0;
    std::vector<ViewName> names;
    std::vector<View> views;
    int64_t tokens = 0;  // that the pass computes
    int64_t scored = 0;
  };
  struct KeptPass {
    size_t micro_batch = 0;
    std::vector<View> views;
    std::unique_ptr<TrainingPass> pass;
    int64_t bytes = 0;
  };

  std::vector<PlannedPass> PlanOf(size_t micro_batch,
                                  const std::vector<Views>& samples,
                                  Completion completion) const;
  // Returns the bytes that a pass keeps until its gradient is taken.
  int64_t BytesOf(const PlannedPass& pass, int64_t activation_bytes) const;
  std::unique_ptr<TrainingPass> Run(std::span<const ViewName> names,
                                    std::span<const View* const> views,
                                    const PackedViews& packed,
                                    int64_t activation_bytes);
  // Returns the whole chunks of the first `tokens` tokens of a sequence. Chunks
  // that were run ahead leave `chunks_`; the other chunks are run now.
  SequencePrefix TakePrefix(std::span<const int32_t> sequence, int64_t tokens);
  // Runs `work` if there is memory for the `bytes` that it keeps. Returns
  // whether it ran.
  template <typename Work>
  bool RunWithin(int64_t bytes, const Work& work);
  // Runs the last chunk of `ids`, after the chunks `before` it.
  ChunkStates RunChunk(std::span<const int32_t> ids,
                       const SequencePrefix& before) const;
  int64_t BytesOfChunk() const;
  void Clear();

  const ModelWeights& weights_;
  const Adapter& live_;
  const std::vector<Term>& terms_;
  const PassLimits limits_;
  ByteBudget& memory_;
  int64_t activation_bytes_ = 0;      // of a pass that is run ahead
  std::vector<PlannedPass> planned_;  // in order
  std::set<size_t> with_references_;  // micro-batches of PlanReferences
  std::vector<KeptPass> passes_;
  // The key is the sequence's tokens up to the end of the chunk.
  std::map<std::vector<int32_t>, ChunkStates> chunks_;
  bool has_given_up_ = false;
  int64_t tokens_ = 0;
};

}  // namespace dapd
