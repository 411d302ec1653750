// OpenAnswers: the answers that are still being sampled, as far as their tokens
// have arrived. Two models compute ahead of the sampler with them:
//   the trainer's    PrefixOf gives it the tokens (forward_ahead.h in
//                    common/objective)
//   the teachers'    a thread turns the tokens into the beginnings of the
//                    teachers' tasks (GrowingViews) and announces them
// Both only save time: the complete answer decides every result, and every task
// is submitted in full.
//
// Thread-safe. The caller of OnTokens brings the tokens of all answers, so no
// text is rendered or tokenized on its thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/data/growing_views.h"
#include "common/data/view_builder.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

class OpenAnswers {
 public:
  // A reader gets an answer's new tokens after each so many tokens; 0: never.
  struct Strides {
    int64_t teachers = 0;
    int64_t trainer = 0;
  };
  // `views` and `teachers` must outlive this.
  OpenAnswers(const ViewBuilder& views,
              TeacherClient& teachers,
              Strides strides);
  ~OpenAnswers();
  OpenAnswers(const OpenAnswers&) = delete;
  OpenAnswers& operator=(const OpenAnswers&) = delete;

  struct Beginning {
    std::vector<int32_t> prompt;  // of the sampler
    std::string problem;
    std::string reference;
    std::shared_ptr<const RowMaterial> material = nullptr;  // of the problem
    // Will be submitted for the answer: complete except for the tokens and
    // ranges of their views. Empty: the teachers hear nothing of the answer.
    std::vector<ScoreTask> tasks;
  };
  // Must be called when the answer to rollout task `id` begins to be sampled.
  // The teachers hear of its prompts as soon as possible.
  void Open(uint64_t id, Beginning beginning);

  // Takes all tokens of the answer so far. Ignores an unknown id, and tokens
  // that do not continue the earlier tokens: a second worker samples these
  // tokens again from the start.
  void OnTokens(uint64_t id, const std::vector<int32_t>& ids);

  // Returns the prompt and the tokens so far; nothing if the answer is not
  // open.
  std::vector<int32_t> PrefixOf(uint64_t id) const;

  // Must be called when the answer has arrived; its tasks follow if
  // `submitted`. Once this returns, the teachers hear nothing more of the
  // answer.
  void Close(uint64_t id, bool submitted);
  // Closes all answers; no task of them follows.
  void CloseAll();

 private:
  struct Answer {
    Beginning beginning;
    std::vector<int32_t> ids;
    size_t for_teachers = 0;  // tokens of `ids` that the teachers may have
    size_t for_trainer = 0;   // tokens of `ids` in PrefixOf
    bool is_queued = false;
  };
  // The state of an answer that only the thread uses.
  struct Progress {
    std::optional<GrowingViews> views;
    size_t grown = 0;  // tokens of the answer in them
  };

  void Run();
  void Queue(uint64_t id, Answer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce(Answer& answer, const Views& views)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Withdraw(const Answer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ViewBuilder& views_;
  TeacherClient& teachers_;
  const Strides strides_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, Answer> answers_ ABSL_GUARDED_BY(mutex_);
  std::deque<uint64_t> queue_ ABSL_GUARDED_BY(mutex_);  // each id once
  std::thread thread_;  // from the first answer with tasks on
};

}  // namespace dapd
