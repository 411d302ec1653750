#include "services/teacher/model_scorer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/model/adapter.h"
#include "common/model/decoder.h"
#include "common/model/describe_worker.h"
#include "common/model/placement.h"
#include "common/model/token_logprobs.h"
#include "common/tensor/torch_bridge.h"

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
  explicit ModelScorer(std::shared_ptr<const ModelWeights> weights)
      : weights_(std::move(weights)) {}

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
    snapshot_ = std::move(adapter);
    return applied;
  }

  absl::Status Score(const ScoreInput& input, const ViewSink& sink) override {
    return CatchTorch([&]() -> absl::Status {
      const c10::InferenceMode no_gradients;
      const at::Tensor hidden = Forward(input);
      int64_t row = 0;
      for (const ViewInput& view : input.views) {
        const at::Tensor own = hidden.narrow(0, row, view.scored_count);
        row += view.scored_count;
        ASSIGN_OR_RETURN(ViewScores scores, Payload(input, own));
        scores.view = view.name;
        if (!sink(std::move(scores))) {
          return absl::CancelledError("the client went away");
        }
      }
      return absl::OkStatus();
    });
  }

 private:
  // Final-norm hidden states of all scored tokens, view behind view.
  at::Tensor Forward(const ScoreInput& input) const {
    std::vector<std::vector<int32_t>> sequences;
    std::vector<int64_t> rows;
    int64_t offset = 0;
    for (const ViewInput& view : input.views) {
      for (int64_t i = 0; i < view.scored_count; ++i) {
        rows.push_back(offset + view.scored_from - 1 + i);
      }
      offset += static_cast<int64_t>(view.input_ids.size());
      sequences.push_back(view.input_ids);
    }
    const at::Device device = weights_->device();
    return ForwardHidden(*weights_,
                         input.with_snapshot ? snapshot_.get() : nullptr,
                         PackTokens(sequences, device),
                         torch::tensor(rows, at::kLong).to(device));
  }

  absl::StatusOr<ViewScores> Payload(const ScoreInput& input,
                                     const at::Tensor& hidden) const {
    switch (input.payload) {
      case ScorePayload::kHiddenStates:
        return HiddenPayload(hidden);
      case ScorePayload::kLogits:
        return LogitsPayload(*weights_, hidden);
      case ScorePayload::kTopK:
        return TopKPayload(*weights_, hidden, input);
    }
    return absl::InternalError("unknown payload");
  }

  const std::shared_ptr<const ModelWeights> weights_;
  std::unique_ptr<const Adapter> snapshot_;  // null: the base
};

}  // namespace

absl::StatusOr<LoadedScorer> LoadModelScorer(const Config& config) {
  SetComputeThreads(config.run.num_threads);
  ASSIGN_OR_RETURN(const at::Device device, ParseDevice(config.model.device));
  ASSIGN_OR_RETURN(const at::ScalarType dtype,
                   ParsePrecision(config.model.precision));
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadModelWeights(config.model.path, dtype, device));
  LoadedScorer loaded;
  loaded.description = DescribeWorker("teacher", *weights, config.lora.rank);
  loaded.description.max_in_flight = kMaxInFlight;
  loaded.scorer = std::make_unique<ModelScorer>(std::move(weights));
  return loaded;
}

}  // namespace dapd
