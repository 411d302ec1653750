// AnswerExchange passes the answers of one step between the ranks. Each rank
// collects the answers to its slice of the batch; rank 0 checks the answers of
// all ranks, puts them into the ledger and makes the records of the whole
// batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/data/dataset.h"
#include "common/rpc/transfer/policy_update.h"
#include "services/trainer/record/full_disk_rule.h"
#include "services/trainer/record/ledger.h"
#include "services/trainer/step/answer_rules.h"
#include "services/trainer/step/rank_messages.h"
#include "services/trainer/step/rollout_record.h"
#include "services/trainer/workers/rollout_task.h"

namespace dapd {

// The ledger, and the rule for a disk that refuses its lines.
struct LedgerOnDisk {
  Ledger& ledger;
  FullDiskRule& disk;
};

// A step whose answers are awaited.
struct SampledStep {
  StepPlan plan;
  std::shared_ptr<const PolicyUpdate> policy;  // that samples it
  std::vector<int64_t> rows;      // [samples of the batch], of the data
  std::vector<RankSlice> slices;  // [ranks], of the batch
  AnswerRules rules;
};

// Not thread-safe: used by the compute thread or, while that trains, by the
// thread that collects answers.
class AnswerExchange {
 public:
  // All must outlive it. `ledger`: at rank 0 only.
  AnswerExchange(Collective& collective,
                 const Dataset& data,
                 const RecordMaker& record_maker,
                 std::optional<LedgerOnDisk> ledger)
      : collective_(collective),
        data_(data),
        record_maker_(record_maker),
        ledger_(ledger) {}

  // Forgets the previous step.
  void Begin() { unshared_.clear(); }

  // Takes a new answer of this rank's slice. Rank 0 checks it and appends it to
  // the ledger: Returns FAILED_PRECONDITION if another policy gave it. Other
  // ranks keep it for Share.
  absl::Status Take(const SampledStep& step,
                    const AnswerPlace& place,
                    const RolloutResult& result);

  // Takes the grade, `result.grade`, of an answer of this rank's slice that was
  // taken or recalled. Rank 0 appends it to the ledger; other ranks keep the
  // answer with it for Share.
  absl::Status TakeGrade(const SampledStep& step,
                         const AnswerPlace& place,
                         const RolloutResult& result);

  // Called by all ranks when they have the answers of their slices. Rank 0
  // takes the other ranks' answers, and returns the records of the whole batch
  // in its order; `own` are the records of its slice. Other ranks return
  // nothing. Returns DATA_LOSS for an answer to a sample of another rank.
  absl::StatusOr<std::vector<RolloutRecord>> Share(
      const SampledStep& step, const std::vector<RolloutRecord>& own);

 private:
  const Problem& ProblemOf(const SampledStep& step, size_t sample) const {
    return data_.problems[static_cast<size_t>(step.rows[sample])];
  }

  Collective& collective_;
  const Dataset& data_;
  const RecordMaker& record_maker_;
  const std::optional<LedgerOnDisk> ledger_;
  PlacedAnswers unshared_;  // at ranks other than 0
};

}  // namespace dapd
