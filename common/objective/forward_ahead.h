// ForwardAhead: forward passes of a step's micro-batches, run while their
// answers are still sampled. The live policy is fixed for the whole step, so
// nothing is stale: a reference's views are known from the start, and
// none_rollout as far as the sampler has come.
//
// What was run ahead is found by its tokens and has the bits that running it
// later would give, because packs and chunks are the same: results depend on
// neither timing nor the memory limit.
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

// Of one step: the adapter must not change meanwhile. Not thread-safe.
class ForwardAhead {
 public:
  // All must outlive it. What it keeps it takes from `memory`.
  ForwardAhead(const ModelWeights& weights,
               const Adapter& live,
               const std::vector<Term>& terms,
               const PassLimits& limits,
               ByteBudget& memory);
  ~ForwardAhead() { Clear(); }
  ForwardAhead(const ForwardAhead&) = delete;
  ForwardAhead& operator=(const ForwardAhead&) = delete;

  // The samples of a step by micro-batch, in the order of their training: of
  // each the views that need no rollout.
  void PlanReferences(const std::vector<std::vector<Views>>& micro_batches);
  // All views of a micro-batch's samples that can be trained; an answer without
  // a token to score has no pass. Its passes come next, those of references
  // that were not known before (rollout.source) among them.
  void PlanRollouts(size_t micro_batch, const std::vector<Views>& samples);

  // Runs the next pass that was planned. False if none is left, or no memory.
  bool AdvancePass();
  // Runs the next chunk of the none_rollout that begins with `ids`. False if no
  // whole chunk is left, or no memory.
  bool AdvanceRollout(std::span<const int32_t> ids);

  // The pass of a pack over `samples`, whose views are `packed`: the one that
  // was run or, if there is none, one that is run now.
  std::unique_ptr<TrainingPass> Take(std::span<const PackPart> pack,
                                     std::span<const Views* const> samples,
                                     const PackedViews& packed);

  // Drops what is left of a micro-batch that was trained.
  void Forget(size_t micro_batch);

  // Drops whatever is kept and runs nothing ahead any more: a device's memory
  // has run out. Says whether anything was dropped.
  bool GiveUp();

  // Tokens that passed forward ahead.
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
  // What it keeps until its gradient is taken.
  int64_t BytesOf(const PlannedPass& pass, int64_t activation_bytes) const;
  std::unique_ptr<TrainingPass> Run(std::span<const ViewName> names,
                                    std::span<const View* const> views,
                                    const PackedViews& packed,
                                    int64_t activation_bytes);
  // The whole chunks of the first `tokens` tokens of a sequence: those that
  // were run, which are kept no longer, and the others, run now.
  SequencePrefix TakePrefix(std::span<const int32_t> sequence, int64_t tokens);
  // Runs `work` if there is memory for the `bytes` that it keeps; says whether
  // it did.
  template <typename Work>
  bool RunWithin(int64_t bytes, const Work& work);
  // The last chunk of `ids`, after those before it.
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
  // By all tokens up to their ends.
  std::map<std::vector<int32_t>, ChunkStates> chunks_;
  bool has_given_up_ = false;
  int64_t tokens_ = 0;
};

}  // namespace dapd
