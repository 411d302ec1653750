// Implements a Sampler without a model: the answer to a prompt is 10, 11, 12,
// ... It has max_new_tokens tokens, or ends after `eos_after` tokens. A scored
// token of a prompt has the log-probability -id, and the token after it is the
// most probable one, with -1. Its calls can be held.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"

#include "services/rollout/sampler.h"

namespace dapd {

// Holds the state that the test shares with the sampler, which the worker owns.
struct FakeSamplerControl {
  std::atomic<int64_t> slots = 4;
  std::atomic<int64_t> eos_after = 1000;
  std::atomic<bool> hold = false;  // no token is sampled while set
  // No answer gets more tokens than this while it is set.
  std::atomic<int64_t> hold_after = 1 << 30;
  std::atomic<bool> fail_steps = false;
  std::atomic<bool> fail_once = false;     // only the next step fails
  std::atomic<bool> break_device = false;  // all later steps fail
  std::atomic<bool> lose_device = false;   // every call fails and reports that
                                           // the device is lost
  // There is no memory for longer requests; they end by themselves.
  std::atomic<int64_t> longest = 1 << 30;
  std::atomic<bool> refuse = false;  // refuses every request
  std::atomic<bool> scores = true;   // false: prompts are not scored
  std::atomic<bool> fail_loads = false;
  std::atomic<float> probe = -1.5F;  // value of every probe log-probability
  std::atomic<int> running = 0;
  std::atomic<int> loads = 0;
  std::atomic<int> cancelled = 0;
  std::atomic<int64_t> restarts = 0;  // value in kv_use()
};

class FakeSampler : public Sampler {
 public:
  explicit FakeSampler(FakeSamplerControl* control) : control_(*control) {}

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) override {
    if (control_.fail_loads) return absl::InvalidArgumentError("bad adapter");
    ++control_.loads;
    return Probe(upload.probe_ids);
  }

  absl::StatusOr<AppliedAdapter> Probe(
      const std::vector<int32_t>& probe_ids) override {
    if (control_.lose_device) return absl::AbortedError("lost");
    return AppliedAdapter{
        7, std::vector<float>(probe_ids.size() - 1, control_.probe)};
  }

  absl::Status Submit(uint64_t id, DecodeRequest request) override {
    if (control_.refuse) return absl::InvalidArgumentError("does not fit");
    running_[id] = {std::move(request), 0};
    control_.running = static_cast<int>(running_.size());
    return absl::OkStatus();
  }

  void Cancel(uint64_t id) override {
    control_.cancelled += static_cast<int>(running_.erase(id));
    control_.running = static_cast<int>(running_.size());
  }

  absl::StatusOr<std::vector<SampledToken>> Step() override {
    if (control_.break_device) return absl::InternalError("CUDA error");
    if (control_.lose_device) return absl::AbortedError("lost");
    if (control_.fail_once.exchange(false)) {
      return absl::ResourceExhaustedError("no memory");
    }
    if (control_.fail_steps) return absl::ResourceExhaustedError("no memory");
    std::vector<SampledToken> tokens;
    if (control_.hold) {
      absl::SleepFor(absl::Milliseconds(1));
      return tokens;
    }
    for (auto& [id, sequence] : running_) {
      if (sequence.second >= control_.hold_after) continue;
      const int64_t count = ++sequence.second;
      if (sequence.first.sampling.max_new_tokens > control_.longest) {
        tokens.push_back(
            {.id = id, .error = absl::ResourceExhaustedError("no memory")});
        continue;
      }
      const std::vector<int32_t>& prompt = sequence.first.prompt_ids;
      const bool scores =
          count == 1 && sequence.first.score_prompt && control_.scores;
      for (size_t i = 1; scores && i < prompt.size(); ++i) {
        tokens.push_back({.id = id,
                          .token = prompt[i],
                          .logprob = static_cast<float>(-prompt[i]),
                          .prompt_top = TopToken{prompt[i] + 1, -1.0F}});
      }
      FinishReason finish_reason = FinishReason::kNone;
      if (count >= control_.eos_after) {
        finish_reason = FinishReason::kEos;
      } else if (count >= sequence.first.sampling.max_new_tokens) {
        finish_reason = FinishReason::kLength;
      }
      tokens.push_back(
          {id, static_cast<int32_t>(9 + count), -0.5F * count, finish_reason});
    }
    if (tokens.empty()) absl::SleepFor(absl::Milliseconds(1));
    for (const SampledToken& token : tokens) {
      if (token.finish_reason != FinishReason::kNone || !token.error.ok()) {
        running_.erase(token.id);
      }
    }
    control_.running = static_cast<int>(running_.size());
    return tokens;
  }

  int64_t num_free() const override {
    return control_.slots - static_cast<int64_t>(running_.size());
  }

  // A running sequence takes a byte; the limit is the number of slots.
  KvUse kv_use() const override {
    return {.bytes = static_cast<int64_t>(running_.size()),
            .limit_bytes = control_.slots,
            .restarts = control_.restarts};
  }

 private:
  FakeSamplerControl& control_;
  std::map<uint64_t, std::pair<DecodeRequest, int64_t>> running_;
};

}  // namespace dapd
