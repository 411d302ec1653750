// PrefixStreamer: tells the teachers of rollouts while these are still sampled,
// so that they compute behind the sampler and little is left to do when the
// last token is there.
//
// A hint only: a task is still submitted in full, and its result is the same
// with and without. Thread-safe. Texts are rendered and tokenized on a thread
// of its own, each once (GrowingPrefixes): the caller of OnTokens receives the
// tokens of all answers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/data/growing_prefixes.h"
#include "common/data/view_builder.h"
#include "services/trainer/workers/teacher_client.h"

namespace dapd {

class PrefixStreamer {
 public:
  // News of an answer goes out every `stride` tokens. Both must outlive this.
  PrefixStreamer(const ViewBuilder& views,
                 TeacherClient& teachers,
                 size_t stride);
  ~PrefixStreamer();

  // The answer to rollout task `id` is being sampled. `tasks` will be submitted
  // for it: complete but for the tokens and ranges of their views. Their
  // prompts are told as soon as possible.
  void Open(uint64_t id, Sample sample, std::vector<ScoreTask> tasks);

  // The answer's tokens so far. Unknown ids are ignored, and so are tokens that
  // do not continue those before.
  void OnTokens(uint64_t id, const std::vector<int32_t>& ids);

  // The answer is there: its tasks follow, or, if not `submitted`, do not.
  // Nothing more is told of it once this returns.
  void Close(uint64_t id, bool submitted);
  // Nothing of what is open will follow.
  void CloseAll();

 private:
  struct Answer {
    Sample sample;  // rollout_ids: those that are to be told
    std::vector<ScoreTask> tasks;
    bool is_queued = false;
  };
  // The state of an answer that the thread alone uses.
  struct Progress {
    std::optional<GrowingPrefixes> prefixes;
    size_t grown = 0;  // rollout tokens in them
  };

  void Run();
  void Queue(uint64_t id, Answer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(Answer& answer, const Views& views)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WithdrawPrefix(const Answer& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ViewBuilder& views_;
  TeacherClient& teachers_;
  const size_t stride_;
  Mutex mutex_;
  CondVar changed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, Answer> answers_ ABSL_GUARDED_BY(mutex_);
  std::deque<uint64_t> queue_ ABSL_GUARDED_BY(mutex_);  // each id once
  std::thread thread_;  // from the first Open on
};

}  // namespace dapd
