// A step's answers between the ranks: each collects those of its slice of the
// batch, and rank 0 checks those of all, hands them on and makes the records of
// the whole batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/data/dataset.h"
#include "common/rpc/transfer/policy_update.h"
#include "services/trainer/step/answer_place.h"
#include "services/trainer/step/answer_rules.h"
#include "services/trainer/step/rank_messages.h"
#include "services/trainer/step/rollout_record.h"
#include "services/trainer/workers/rollout_task.h"

namespace dapd {

// Called at rank 0 with each answer of the batch that was not recalled; one
// call at a time, but not always on the compute thread.
using OnAnswer = std::function<absl::Status(const AnswerPlace& place,
                                            const Problem& problem,
                                            const RolloutResult& result)>;

// A step whose answers are awaited.
struct SampledStep {
  StepPlan plan;
  std::shared_ptr<const PolicyUpdate> policy;  // that samples it
  std::vector<int64_t> rows;      // of the data, for each sample of the batch
  std::vector<RankSlice> slices;  // by rank: its samples' places in the batch
};

// Not thread-safe.
class AnswerExchange {
 public:
  // All must outlive it.
  AnswerExchange(Collective& collective,
                 const Dataset& data,
                 const RecordMaker& record_maker,
                 const AnswerRules& rules)
      : collective_(collective),
        data_(data),
        record_maker_(record_maker),
        rules_(rules) {}

  // Forgets the step before.
  void Begin() { to_report_.clear(); }

  // An answer of this rank's slice that was not recalled. With `on_answer`,
  // which rank 0 has, it is checked and handed on: FAILED_PRECONDITION if
  // another policy gave it. Elsewhere it is kept for Share.
  absl::Status Take(const SampledStep& step,
                    const AnswerPlace& place,
                    const RolloutResult& result,
                    const OnAnswer& on_answer);

  // Called by all ranks when they have the answers of their slices. At rank 0
  // the records of the whole batch, in its order, of which `own` are its
  // slice's, after the others' answers went the way of Take; elsewhere nothing.
  // DATA_LOSS for an answer to a sample that is not its rank's.
  absl::StatusOr<std::vector<RolloutRecord>> Share(
      const SampledStep& step,
      const std::vector<RolloutRecord>& own,
      const OnAnswer& on_answer);

 private:
  absl::Status HandOn(const SampledStep& step,
                      const AnswerPlace& place,
                      const RolloutResult& result,
                      const OnAnswer& on_answer) const;
  const Problem& ProblemOf(const SampledStep& step, size_t sample) const {
    return data_.problems[static_cast<size_t>(step.rows[sample])];
  }

  Collective& collective_;
  const Dataset& data_;
  const RecordMaker& record_maker_;
  const AnswerRules& rules_;
  std::vector<BatchAnswer> to_report_;  // those that rank 0 does not know yet
};

}  // namespace dapd
