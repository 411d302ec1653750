#include "services/teacher/model_scorer.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/model/fast/chunk_forward.h"
#include "common/model/reference/decoder.h"
#include "common/model/reference/token_logprobs.h"
#include "common/model/spec/gpu_shares.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/describe_worker.h"
#include "common/model/weights/placement.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/prefix_cache.h"

namespace dapd {
namespace {

// Rows whose logits are held at a time: 64 x 151,936 float32 are 37 MiB.
constexpr int64_t kHeadRows = 64;

// A client may ask while one request computes and one is on its way.
constexpr int64_t kMaxInFlight = 2;

// Calls `take` with the first row and the logits of each chunk of rows.
template <typename Take>
void ForEachLogits(const ModelWeights& weights,
                   const at::Tensor& hidden,
                   const Take& take) {
  for (int64_t row = 0; row < hidden.size(0); row += kHeadRows) {
    const int64_t count = std::min(kHeadRows, hidden.size(0) - row);
    take(row, ApplyHead(weights, hidden.narrow(0, row, count)));
  }
}

absl::StatusOr<ViewScores> HiddenPayload(const at::Tensor& hidden) {
  ViewScores scores;
  ASSIGN_OR_RETURN(HostTensor host, FromTorch(hidden.cpu().contiguous()));
  scores.tensors.emplace_back("hidden", std::move(host));
  return scores;
}

absl::StatusOr<ViewScores> LogitsPayload(const ModelWeights& weights,
                                         const at::Tensor& hidden) {
  ASSIGN_OR_RETURN(
      HostTensor host,
      HostTensor::Allocate(DType::kFloat32,
                           {hidden.size(0), weights.config.vocab_size}));
  at::Tensor all = ToTorch(host);
  ForEachLogits(weights, hidden, [&](int64_t row, const at::Tensor& logits) {
    all.narrow(0, row, logits.size(0)).copy_(logits);
  });
  ViewScores scores;
  scores.tensors.emplace_back("logits", std::move(host));
  return scores;
}

absl::StatusOr<ViewScores> TopKPayload(const ModelWeights& weights,
                                       const at::Tensor& hidden,
                                       const ScoreInput& input) {
  const std::vector<int64_t> shape = {hidden.size(0), input.top_k};
  ASSIGN_OR_RETURN(HostTensor ids, HostTensor::Allocate(DType::kInt32, shape));
  ASSIGN_OR_RETURN(HostTensor logprobs,
                   HostTensor::Allocate(DType::kFloat32, shape));
  at::Tensor all_ids = ToTorch(ids);
  at::Tensor all_logprobs = ToTorch(logprobs);
  ForEachLogits(weights, hidden, [&](int64_t row, const at::Tensor& logits) {
    const at::Tensor normalised =
        at::log_softmax(logits.div(input.temperature), /*dim=*/-1);
    const auto [values, indices] = normalised.topk(input.top_k, /*dim=*/-1);
    all_ids.narrow(0, row, logits.size(0)).copy_(indices);
    all_logprobs.narrow(0, row, logits.size(0)).copy_(values);
  });
  ViewScores scores;
  scores.tensors.emplace_back("ids", std::move(ids));
  scores.tensors.emplace_back("logprobs", std::move(logprobs));
  return scores;
}

class ModelScorer : public Scorer {
 public:
  ModelScorer(std::shared_ptr<const ModelWeights> weights,
              const TeacherSection& config)
      : weights_(std::move(weights)),
        chunk_tokens_(config.chunk_tokens),
        cache_(config.prefix_memory_mib << 20) {
    sets_[WeightSet::kBase] = {};
  }

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) override {
    std::unique_ptr<const Adapter> adapter;
    if (!upload.is_base) {
      ASSIGN_OR_RETURN(
          Adapter parsed,
          ParseAdapter(upload.adapter, weights_->config, weights_->device()));
      adapter = std::make_unique<const Adapter>(std::move(parsed));
    }
    AppliedAdapter applied;
    applied.modules_applied = adapter == nullptr ? 0 : adapter->NumModules();
    RETURN_IF_ERROR(CatchTorch([&] {
      const at::Tensor logprobs =
          TokenLogprobs(*weights_, adapter.get(), upload.probe_ids);
      const float* values = logprobs.const_data_ptr<float>();
      applied.probe_logprobs.assign(values, values + logprobs.numel());
      return absl::OkStatus();
    }));
    // What the set's old weights computed is found no more, with its root.
    if (upload.set != WeightSet::kBase) {
      sets_[upload.set] = {.adapter = std::move(adapter)};
    }
    return applied;
  }

  absl::StatusOr<ScoreWork> Score(const ScoreInput& input,
                                  const ViewSink& sink) override {
    ScoreWork work;
    RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
      const c10::InferenceMode no_gradients;
      for (const auto& [name, view] : input.views) {
        const at::Tensor hidden = Forward(input.weights, view, &work);
        ASSIGN_OR_RETURN(ViewScores scores, PayloadOf(input, hidden));
        scores.view = name;
        if (!sink(std::move(scores))) {
          return absl::CancelledError("the client went away");
        }
      }
      return absl::OkStatus();
    }));
    return work;
  }

  absl::StatusOr<bool> Advance(WeightSet weights,
                               const std::vector<int32_t>& ids,
                               HeldPrefix* prefix) override {
    const auto left = static_cast<int64_t>(ids.size()) - prefix->tokens;
    if (left < chunk_tokens_) return false;
    PrefixChunkPtr chunk =
        prefix->tokens == 0
            ? sets_.at(weights).root
            : std::static_pointer_cast<const PrefixChunk>(prefix->hold);
    const auto next =
        std::span(ids).subspan(static_cast<size_t>(prefix->tokens),
                               static_cast<size_t>(chunk_tokens_));
    if (cache_.Find(chunk, next) == nullptr &&
        !cache_.MakeRoom(ChunkBytes(*weights_, chunk_tokens_))) {
      return false;
    }
    RETURN_IF_ERROR(CatchTorch([&] {
      const c10::InferenceMode no_gradients;
      int64_t computed = 0;
      chunk = Next(sets_.at(weights), chunk, next, &computed);
      return absl::OkStatus();
    }));
    prefix->tokens = chunk->end;
    prefix->hold = std::move(chunk);
    return true;
  }

  void Forget() override { cache_.Clear(); }

 private:
  struct LoadedSet {
    std::unique_ptr<const Adapter> adapter;  // null: the base
    // Of all sequences that were computed with it.
    PrefixChunkPtr root = std::make_shared<const PrefixChunk>();
  };

  // Final-norm hidden states of the view's scored tokens: [scored_count,
  // hidden]. What stands after the last position that scores is not computed.
  at::Tensor Forward(WeightSet weights, const View& view, ScoreWork* work) {
    const LoadedSet& set = sets_.at(weights);
    const int64_t first = view.scored_from - 1;
    const int64_t end = first + view.scored_count;
    PrefixChunkPtr chunk = set.root;
    std::vector<at::Tensor> parts;
    int64_t computed = 0;
    while (chunk->end < end) {
      const int64_t begin = chunk->end;
      const int64_t tokens = std::min(chunk_tokens_, end - begin);
      chunk = Next(
          set,
          chunk,
          std::span(view.input_ids)
              .subspan(static_cast<size_t>(begin), static_cast<size_t>(tokens)),
          &computed);
      if (chunk->end <= first) continue;
      const int64_t skipped = std::max<int64_t>(first - begin, 0);
      parts.push_back(
          chunk->states.hidden.narrow(0, skipped, tokens - skipped));
    }
    work->computed_tokens += computed;
    work->reused_tokens += end - computed;
    return at::cat(parts, 0);
  }

  // The chunk of `ids` after `parent`: the one that is kept, else computed
  // (then `computed` grows by its tokens) and kept, if it is a whole one.
  PrefixChunkPtr Next(const LoadedSet& set,
                      const PrefixChunkPtr& parent,
                      std::span<const int32_t> ids,
                      int64_t* computed) {
    const auto tokens = static_cast<int64_t>(ids.size());
    if (PrefixChunkPtr kept = cache_.Find(parent, ids)) return kept;
    std::vector<at::Tensor> past;
    for (const PrefixChunk* before = parent.get(); before->end > 0;
         before = before->parent.get()) {
      past.push_back(before->states.keys_values);
    }
    std::reverse(past.begin(), past.end());
    auto chunk = std::make_shared<PrefixChunk>();
    chunk->parent = parent;
    chunk->ids.assign(ids.begin(), ids.end());
    chunk->end = parent->end + tokens;
    at::Tensor packed = at::empty({tokens}, at::kLong);
    std::copy(ids.begin(), ids.end(), packed.data_ptr<int64_t>());
    chunk->states = ForwardChunk(
        *weights_, set.adapter.get(), packed.to(weights_->device()), past);
    *computed += tokens;
    if (tokens == chunk_tokens_) {
      cache_.Insert(chunk, ChunkBytes(*weights_, tokens));
    }
    return chunk;
  }

  absl::StatusOr<ViewScores> PayloadOf(const ScoreInput& input,
                                       const at::Tensor& hidden) const {
    switch (input.payload) {
      case Payload::kHiddenStates:
        return HiddenPayload(hidden);
      case Payload::kLogits:
        return LogitsPayload(*weights_, hidden);
      case Payload::kTopK:
        return TopKPayload(*weights_, hidden, input);
    }
    return absl::InternalError("unknown payload");
  }

  const std::shared_ptr<const ModelWeights> weights_;
  const int64_t chunk_tokens_;
  PrefixCache cache_;
  std::map<WeightSet, LoadedSet> sets_;
};

}  // namespace

absl::StatusOr<LoadedScorer> LoadModelScorer(const Config& config) {
  SetComputeThreads(config.run.num_threads);
  ASSIGN_OR_RETURN(const at::Device device, OpenDevice(config.model));
  ASSIGN_OR_RETURN(const at::ScalarType dtype,
                   ParsePrecision(config.model.precision));
  if (device.is_cuda()) {
    ASSIGN_OR_RETURN(const ModelConfig model,
                     ReadModelConfig(config.model.path));
    RETURN_IF_ERROR(CheckOwnGpu("teacher", PlanMemory(config, model).teacher));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadModelWeights(config.model.path, dtype, device));
  LoadedScorer loaded;
  loaded.description = DescribeWorker("teacher", *weights, config.lora.rank);
  loaded.description.max_in_flight = kMaxInFlight;
  loaded.description.weight_sets = {kTeacherSets.begin(), kTeacherSets.end()};
  loaded.scorer =
      std::make_unique<ModelScorer>(std::move(weights), config.teacher);
  return loaded;
}

}  // namespace dapd
