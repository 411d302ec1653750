#include "common/objective/forward_ahead.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

std::vector<const View*> Pointers(const std::vector<View>& views) {
  std::vector<const View*> pointers;
  for (const View& view : views) pointers.push_back(&view);
  return pointers;
}

}  // namespace

ForwardAhead::ForwardAhead(const ModelWeights& weights,
                           const Adapter& live,
                           const std::vector<Term>& terms,
                           const PassLimits& limits,
                           ByteBudget& memory)
    : weights_(weights),
      live_(live),
      terms_(terms),
      limits_(limits),
      memory_(memory) {}

std::vector<ForwardAhead::PlannedPass> ForwardAhead::PlanOf(
    size_t micro_batch,
    const std::vector<Views>& samples,
    Completion completion) const {
  std::vector<const Views*> pointers;
  for (const Views& views : samples) pointers.push_back(&views);
  std::vector<PlannedPass> passes;
  for (const Pack& pack : PlanPacks(terms_, pointers, completion, limits_)) {
    PlannedPass pass = {micro_batch, NamesOf(pack), {}};
    const std::vector<const View*> views = ViewsOf(pack, pointers);
    pass.tokens = PlanPass(views).num_tokens;
    for (const View* view : views) {
      pass.views.push_back(*view);
      pass.scored += view->scored_count;
    }
    passes.push_back(std::move(pass));
  }
  return passes;
}

int64_t ForwardAhead::BytesOf(const PlannedPass& pass,
                              int64_t activation_bytes) const {
  return TrainingPassBytes(
      weights_, live_, pass.tokens, pass.scored, activation_bytes);
}

// Keeping inputs saves a whole forward pass; keeping activations saves only the
// second forward pass of a layer. So the inputs of all passes come first, and
// the activations share the remaining memory.
void ForwardAhead::PlanReferences(
    const std::vector<std::vector<Views>>& micro_batches) {
  planned_.clear();
  with_references_.clear();
  int64_t inputs = 0;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    for (PlannedPass& pass :
         PlanOf(i, micro_batches[i], Completion::kReference)) {
      inputs += BytesOf(pass, 0);
      with_references_.insert(i);
      planned_.push_back(std::move(pass));
    }
  }
  if (planned_.empty()) return;
  const int64_t share =
      (memory_.left() - inputs) / static_cast<int64_t>(planned_.size());
  activation_bytes_ =
      std::min(limits_.activation_bytes, std::max<int64_t>(share, 0));
}

void ForwardAhead::PlanRollouts(size_t micro_batch,
                                const std::vector<Views>& samples) {
  std::vector<PlannedPass> passes;
  if (!with_references_.contains(micro_batch)) {
    passes = PlanOf(micro_batch, samples, Completion::kReference);
  }
  for (PlannedPass& pass : PlanOf(micro_batch, samples, Completion::kRollout)) {
    passes.push_back(std::move(pass));
  }
  planned_.insert(planned_.begin(),
                  std::make_move_iterator(passes.begin()),
                  std::make_move_iterator(passes.end()));
}

bool ForwardAhead::AdvancePass() {
  if (planned_.empty() || has_given_up_) return false;
  PlannedPass& next = planned_.front();
  KeptPass kept;
  kept.bytes = BytesOf(next, activation_bytes_);
  const std::vector<const View*> views = Pointers(next.views);
  const bool was_run = RunWithin(kept.bytes, [&] {
    const PackedViews packed = PackViews(views, weights_.device());
    const size_t chunks = chunks_.size();
    kept.pass = Run(next.names, views, packed, activation_bytes_);
    // The chunks that the pass took over were counted before.
    const auto taken = static_cast<int64_t>(chunks - chunks_.size());
    tokens_ += next.tokens - taken * limits_.chunk_tokens;
  });
  if (!was_run) return false;
  kept.micro_batch = next.micro_batch;
  kept.views = std::move(next.views);
  passes_.push_back(std::move(kept));
  planned_.erase(planned_.begin());
  return true;
}

bool ForwardAhead::AdvanceRollout(std::span<const int32_t> ids) {
  const auto size = static_cast<size_t>(limits_.chunk_tokens);
  if (size == 0) return false;
  SequencePrefix before;
  while ((before.size() + 1) * size <= ids.size()) {
    const auto to_end = ids.first((before.size() + 1) * size);
    std::vector<int32_t> key(to_end.begin(), to_end.end());
    if (const auto found = chunks_.find(key); found != chunks_.end()) {
      before.push_back(found->second);
      continue;
    }
    return RunWithin(BytesOfChunk(), [&] {
      chunks_[std::move(key)] = RunChunk(to_end, before);
      tokens_ += limits_.chunk_tokens;
    });
  }
  return false;
}

std::unique_ptr<TrainingPass> ForwardAhead::Take(
    std::span<const PackPart> pack,
    std::span<const Views* const> samples,
    const PackedViews& packed) {
  const std::vector<const View*> views = ViewsOf(pack, samples);
  const auto found = std::ranges::find_if(passes_, [&](const KeptPass& kept) {
    return std::ranges::equal(
        kept.views, views, [](const View& a, const View* b) {
          return a == *b;
        });
  });
  if (found == passes_.end()) {
    return Run(NamesOf(pack), views, packed, limits_.activation_bytes);
  }
  std::unique_ptr<TrainingPass> pass = std::move(found->pass);
  memory_.Give(found->bytes);
  passes_.erase(found);
  return pass;
}

void ForwardAhead::Forget(size_t micro_batch) {
  std::erase_if(planned_, [&](const PlannedPass& pass) {
    return pass.micro_batch == micro_batch;
  });
  std::erase_if(passes_, [&](const KeptPass& kept) {
    if (kept.micro_batch != micro_batch) return false;
    memory_.Give(kept.bytes);
    return true;
  });
}

std::unique_ptr<TrainingPass> ForwardAhead::Run(
    std::span<const ViewName> names,
    std::span<const View* const> views,
    const PackedViews& packed,
    int64_t activation_bytes) {
  std::vector<SequencePrefix> prefixes(packed.plan.sequences.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != ViewName::kNoneRollout) continue;
    const size_t sequence = packed.plan.sequence_of_view[i];
    prefixes[sequence] =
        TakePrefix(packed.plan.sequences[sequence], NeededTokens(*views[i]));
  }
  return MakeTrainingPass(weights_,
                          live_,
                          packed.tokens,
                          packed.rows,
                          activation_bytes,
                          std::move(prefixes));
}

SequencePrefix ForwardAhead::TakePrefix(std::span<const int32_t> sequence,
                                        int64_t tokens) {
  const auto size = static_cast<size_t>(limits_.chunk_tokens);
  SequencePrefix prefix;
  if (size == 0) return prefix;
  // The pass that continues needs at least one token.
  const size_t end = std::min(static_cast<size_t>(tokens), sequence.size() - 1);
  while ((prefix.size() + 1) * size <= end) {
    const auto to_end = sequence.first((prefix.size() + 1) * size);
    auto kept = chunks_.extract({to_end.begin(), to_end.end()});
    if (kept.empty()) {
      prefix.push_back(RunChunk(to_end, prefix));
    } else {
      prefix.push_back(std::move(kept.mapped()));
      memory_.Give(BytesOfChunk());
    }
  }
  return prefix;
}

bool ForwardAhead::GiveUp() {
  const bool dropped = !passes_.empty() || !chunks_.empty();
  if (dropped) {
    LogWarning(
        "not enough memory beside the passes that were run ahead of the "
        "answers; this step continues without them. Lower "
        "trainer.ahead_memory_mib");
  }
  Clear();
  has_given_up_ = true;
  return dropped;
}

template <typename Work>
bool ForwardAhead::RunWithin(int64_t bytes, const Work& work) {
  if (has_given_up_ || !memory_.Take(bytes)) return false;
  try {
    work();
    return true;
  } catch (const c10::Error& error) {
    memory_.Give(bytes);
    if (!IsOutOfMemory(error)) throw;
  }
  GiveUp();
  return false;
}

ChunkStates ForwardAhead::RunChunk(std::span<const int32_t> ids,
                                   const SequencePrefix& before) const {
  std::vector<at::Tensor> past;
  for (const ChunkStates& chunk : before) past.push_back(chunk.keys_values);
  const auto own = ids.last(static_cast<size_t>(limits_.chunk_tokens));
  const PackedTokens packed =
      PackTokens({{own.begin(), own.end()}}, weights_.device());
  return ForwardChunk(
      weights_, &live_, packed.ids, past, ChunkKeeps::kLayerInputs);
}

int64_t ForwardAhead::BytesOfChunk() const {
  return ChunkBytes(weights_, limits_.chunk_tokens, ChunkKeeps::kLayerInputs);
}

void ForwardAhead::Clear() {
  for (const KeptPass& kept : passes_) memory_.Give(kept.bytes);
  passes_.clear();
  memory_.Give(static_cast<int64_t>(chunks_.size()) * BytesOfChunk());
  chunks_.clear();
}

}  // namespace dapd
