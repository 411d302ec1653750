// Implements a Scorer without a model: hidden[i][j] = input_ids[scored_from - 1
// + i] + j, plus 1000 with the snapshot, 2000 with the moving average, 3000
// with the live adapter. Its calls can be held.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"

#include "services/teacher/scorer.h"

namespace dapd {

// Holds the state that the test shares with the scorer, which the worker owns.
struct FakeScorerControl {
  std::atomic<bool> hold = false;  // no score is returned while set
  std::atomic<bool> fail = false;
  std::atomic<bool> lose_device = false;  // every later call fails
  std::atomic<float> probe = -1.5F;       // value of every probe
                                          // log-probability
  std::atomic<int> started = 0;
  std::atomic<int> loads = 0;
  std::atomic<int64_t> hidden_size = 8;
  // Tokens computed ahead, and the number of chunks for which there is memory.
  std::atomic<int64_t> base_ahead = 0;
  std::atomic<int64_t> adapter_ahead = 0;
  std::atomic<int64_t> chunks_left = 1 << 30;
  std::atomic<int> forgotten = 0;
  std::atomic<int> most_together = 1;
  std::atomic<int> largest_batch = 0;  // most requests that were scored
                                       // together
};

class FakeScorer : public Scorer {
 public:
  explicit FakeScorer(FakeScorerControl* control) : control_(*control) {}

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) override {
    ++control_.loads;
    return Probe(upload.set, upload.probe_ids);
  }

  absl::StatusOr<AppliedAdapter> Probe(
      WeightSet /*set*/, const std::vector<int32_t>& probe_ids) override {
    if (control_.lose_device) return absl::AbortedError("lost");
    return AppliedAdapter{
        7, std::vector<float>(probe_ids.size() - 1, control_.probe)};
  }

  absl::StatusOr<ScoreWork> Score(const ScoreInput& input,
                                  const ViewSink& sink) override {
    ScoreWork work;
    ++control_.started;
    while (control_.hold) absl::SleepFor(absl::Milliseconds(1));
    if (control_.fail) return absl::ResourceExhaustedError("no memory");
    if (control_.lose_device) return absl::AbortedError("lost");
    for (const auto& [name, view] : input.views) {
      work.computed_tokens += static_cast<int64_t>(view.input_ids.size());
      const int64_t width = input.payload == Payload::kTopK
                                ? input.top_k
                                : control_.hidden_size.load();
      HostTensor hidden =
          *HostTensor::Allocate(DType::kFloat32, {view.scored_count, width});
      auto* values = reinterpret_cast<float*>(hidden.data.get());
      for (int64_t i = 0; i < view.scored_count; ++i) {
        const int64_t position = view.scored_from - 1 + i;
        for (int64_t j = 0; j < width; ++j) {
          *values++ = static_cast<float>(
              view.input_ids[static_cast<size_t>(position)] + j +
              1000 * static_cast<int64_t>(input.weights));
        }
      }
      ViewScores scores{name, {}};
      if (input.payload == Payload::kTopK) {
        HostTensor ids =
            *HostTensor::Allocate(DType::kInt32, {view.scored_count, width});
        std::fill_n(ids.data.get(), ids.num_bytes(), '\0');
        scores.tensors.emplace_back("ids", std::move(ids));
        scores.tensors.emplace_back("logprobs", std::move(hidden));
      } else {
        scores.tensors.emplace_back("hidden", std::move(hidden));
      }
      if (!sink(std::move(scores))) return absl::CancelledError("unwanted");
    }
    return work;
  }

  int64_t chunk_tokens() const override { return 4; }
  // Computes one chunk per call.
  absl::StatusOr<int64_t> Advance(
      std::span<const AheadSequence> sequences) override {
    if (control_.fail) return absl::ResourceExhaustedError("no memory");
    if (control_.lose_device) return absl::AbortedError("lost");
    if (control_.chunks_left-- <= 0) return 0;
    const AheadSequence& first = sequences.front();
    first.prefix->tokens += 4;
    (first.weights == WeightSet::kBase ? control_.base_ahead
                                       : control_.adapter_ahead) += 4;
    return 4;
  }

  int64_t most_together() const override { return control_.most_together; }
  std::vector<absl::StatusOr<ScoreWork>> ScoreTogether(
      std::span<const ScoreJob> jobs) override {
    control_.largest_batch =
        std::max(control_.largest_batch.load(), static_cast<int>(jobs.size()));
    return Scorer::ScoreTogether(jobs);
  }

  void Forget() override { ++control_.forgotten; }

 private:
  FakeScorerControl& control_;
};

}  // namespace dapd
