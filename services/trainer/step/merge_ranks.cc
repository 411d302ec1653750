#include "services/trainer/step/merge_ranks.h"

#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/collective/parse_rank_message.h"
#include "common/training/metric_table.h"
#include "dapd/v1/rank.pb.h"

namespace dapd {

absl::Status MergeLosses(Collective& collective,
                         ObjectiveAccumulator* objective) {
  ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                   collective.Gather(objective->Sums().SerializeAsString()));
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    ASSIGN_OR_RETURN(
        const v1::ObjectiveSums sums,
        ParseRankMessage<v1::ObjectiveSums>(parts[rank], "its losses"));
    RETURN_IF_ERROR(objective->Merge(sums));
  }
  return absl::OkStatus();
}

absl::Status MergeReports(Collective& collective,
                          const std::string& adapter_digest,
                          StepReport* report) {
  v1::RankStep own;
  own.set_adapter_digest(adapter_digest);
  for (const auto& [path, value] : MetricsOfRank(*report)) {
    (*own.mutable_metrics())[path] = value;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                   collective.Gather(own.SerializeAsString()));
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    ASSIGN_OR_RETURN(
        const v1::RankStep other,
        ParseRankMessage<v1::RankStep>(parts[rank], "the end of a step"));
    if (other.adapter_digest() != adapter_digest) {
      return absl::DataLossError(
          absl::StrCat("trainer rank ",
                       rank,
                       " ended step ",
                       report->step,
                       " with different weights from rank 0; are its processor "
                       "and thread count the same?"));
    }
    RETURN_IF_ERROR(
        MergeRank({other.metrics().begin(), other.metrics().end()}, report));
  }
  return absl::OkStatus();
}

}  // namespace dapd
