// Implements workers of a trainer that answer at once, in this process.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/mutex.h"
#include "common/tensor/torch_bridge.h"
#include "common/training/policy.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

// Holds the state when a problem was submitted: the version of the policy that
// the workers served, and the number of trained steps.
struct Submission {
  int64_t served = 0;
  int64_t trained = 0;
  bool operator==(const Submission&) const = default;
};

using AnswerOf = std::function<std::vector<int32_t>(const SamplingKey& key)>;

// Answers every task with the same tokens, under the last policy. One thread
// submits tasks and another thread asks for answers, one after the other.
class InstantRollouts : public RolloutClient {
 public:
  InstantRollouts(const Policy& policy, uint64_t run_seed)
      : policy_(policy), run_seed_(run_seed) {}

  void SetWeights(PolicyUpdates updates) override {
    EXPECT_TRUE(tasks_.empty()) << "a policy was replaced that still samples";
    served_ = updates.at(WeightSet::kLive);
  }
  void Listen(OnTokens on_tokens) override {
    listened_ |= !!on_tokens;
    on_tokens_ = std::move(on_tokens);
  }
  void Submit(RolloutTask task) override {
    const Submission submission{served_->version, policy_.version()};
    if (task.request.key.seed == run_seed_) {
      submissions_[int64_t{task.request.key.step} + 1].push_back(submission);
    } else {
      held_out_submissions_.push_back(submission);
    }
    *is_far_ahead_ = false;
    keys_[task.id] = task.request.key;
    tasks_.push_back(task.id);
  }
  absl::StatusOr<std::optional<RolloutResult>> NextWithin(
      absl::Duration timeout) override {
    if (tasks_.size() == 1 && holds_back_ && !is_far_ahead_->load()) {
      if (on_tokens_) {
        on_tokens_(tasks_.front(), {answer_.begin(), answer_.end() - 1});
      }
      absl::SleepFor(std::min(timeout, absl::Milliseconds(1)));
      return std::nullopt;
    }
    if (num_left_ == 0) return absl::UnavailableError("no worker is left");
    --num_left_;
    RolloutResult result;
    if (answers_last_first_) std::reverse(tasks_.begin(), tasks_.end());
    result.id = tasks_.front();
    tasks_.pop_front();
    if (answers_last_first_) std::reverse(tasks_.begin(), tasks_.end());
    result.ids = result.id % 2 == 0 ? even_answer_.value_or(answer_) : answer_;
    if (answer_of_) result.ids = answer_of_(keys_.at(result.id));
    result.logprobs = logprobs_;
    result.policy_version = served_->version + (lies_ ? 1 : 0);
    result.adapter_digest = served_->adapter.digest;
    return result;
  }
  std::vector<WorkerState> Workers() const override { return {}; }
  void Shutdown() override {}

  const Policy& policy_;
  const uint64_t run_seed_;
  std::shared_ptr<const PolicyUpdate> served_;
  std::deque<uint64_t> tasks_;
  std::map<int64_t, std::vector<Submission>> submissions_;  // by step
  std::vector<Submission> held_out_submissions_;
  std::vector<int32_t> answer_;
  std::vector<float> logprobs_;
  std::optional<std::vector<int32_t>> even_answer_;  // for tasks with even ids
  AnswerOf answer_of_;                               // if set, replaces the
                                                     // fixed answers
  std::map<uint64_t, SamplingKey> keys_;             // keys of all tasks so far
  int64_t num_left_ = -1;  // answers until no worker is left; endless if
                           // negative
  OnTokens on_tokens_;
  bool listened_ = false;
  bool lies_ = false;  // answers name a wrong policy
  bool answers_last_first_ = false;
  // Holds back the last answer until enough was trained without it.
  bool holds_back_ = false;
  std::atomic<bool>* is_far_ahead_ = nullptr;
};

class InstantTeachers : public TeacherClient {
 public:
  explicit InstantTeachers(int64_t hidden_size) : hidden_size_(hidden_size) {}

  void SetWeights(PolicyUpdates updates) override {
    weights_.push_back(std::move(updates));
  }
  void Submit(ScoreTask task) override {
    MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
  }
  void SubmitPrefix(ScoreTask) override { ++prefixes_; }
  void WithdrawPrefix(uint64_t) override {}
  absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration) override {
    MutexLock lock(&mutex_);
    ScoreResult result;
    result.id = tasks_.front().id;
    for (const auto& [name, view] : tasks_.front().views) {
      EXPECT_GE(view.scored_count, 1) << "a teacher refuses less";
      longest_view_ = std::max(longest_view_, view.input_ids.size());
      result.views[name]["hidden"] =
          *FromTorch(at::full({view.scored_count, hidden_size_}, 0.5));
    }
    tasks_.pop_front();
    return result;
  }
  std::vector<WorkerState> Workers() const override { return {}; }
  void Shutdown() override {}

  const int64_t hidden_size_;
  Mutex mutex_;
  std::deque<ScoreTask> tasks_ ABSL_GUARDED_BY(mutex_);
  int64_t prefixes_ = 0;
  size_t longest_view_ = 0;             // longest scored view, in tokens
  std::vector<PolicyUpdates> weights_;  // in the order in which they were set
};

}  // namespace dapd
