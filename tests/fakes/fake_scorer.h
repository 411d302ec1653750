// A Scorer without a model: hidden[i][j] = input_ids[scored_from - 1 + i] + j,
// plus 1000 under the snapshot. Its calls can be held up.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"

#include "services/teacher/scorer.h"

namespace dapd {

// What the test and the scorer (which the worker owns) share.
struct FakeScorerControl {
  std::atomic<bool> hold = false;  // no score comes while set
  std::atomic<bool> fail = false;
  std::atomic<float> probe = -1.5F;  // every probe log-probability
  std::atomic<int> started = 0;
  std::atomic<int> loads = 0;
  std::atomic<int64_t> hidden_size = 8;
};

class FakeScorer : public Scorer {
 public:
  explicit FakeScorer(FakeScorerControl* control) : control_(*control) {}

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) override {
    ++control_.loads;
    return AppliedAdapter{
        7, std::vector<float>(upload.probe_ids.size() - 1, control_.probe)};
  }

  absl::Status Score(const ScoreInput& input, const ViewSink& sink) override {
    ++control_.started;
    while (control_.hold) absl::SleepFor(absl::Milliseconds(1));
    if (control_.fail) return absl::ResourceExhaustedError("no memory");
    for (const ViewInput& view : input.views) {
      const int64_t width = input.payload == ScorePayload::kTopK
                                ? input.top_k
                                : control_.hidden_size.load();
      HostTensor hidden =
          *HostTensor::Allocate(DType::kFloat32, {view.scored_count, width});
      auto* values = reinterpret_cast<float*>(hidden.data.get());
      for (int64_t i = 0; i < view.scored_count; ++i) {
        const int64_t position = view.scored_from - 1 + i;
        for (int64_t j = 0; j < width; ++j) {
          *values++ =
              static_cast<float>(view.input_ids[static_cast<size_t>(position)] +
                                 j + (input.with_snapshot ? 1000 : 0));
        }
      }
      ViewScores scores{view.name, {}};
      if (input.payload == ScorePayload::kTopK) {
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
    return absl::OkStatus();
  }

 private:
  FakeScorerControl& control_;
};

}  // namespace dapd
