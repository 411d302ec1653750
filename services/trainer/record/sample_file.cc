#include "services/trainer/record/sample_file.h"

#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// What common/data/sample_rows.h reads, and what people want to see.
Json ToRow(const RolloutRecord& record) {
  const bool is_given = record.reference_ids.empty();
  Json row = {
      {"id", record.problem->id},
      {"problem", record.problem->problem},
      {"reference", is_given ? record.problem->solution : record.reference},
      {"rollout_ids", record.answer.ids},
      {"rollout", record.text},
      {"finish_reason", NameOf(record.answer.finish_reason)},
      {"has_box", record.grade.has_box},
      {"correct", record.grade.correct}};
  if (!record.answer.logprobs.empty())
    row["sampler_logprobs"] = record.answer.logprobs;
  if (!is_given) {
    row["reference_ids"] = record.reference_ids;
    row["reference_approved"] = record.is_approved;
  }
  if (record.is_left_out) row["left_out"] = true;
  if (record.context.sibling.has_value()) {
    row["sibling"] = *record.context.sibling;
  }
  if (!record.context.feedback.empty()) {
    row["feedback"] = record.context.feedback;
  }
  return row;
}

}  // namespace

absl::Status WriteSamples(const std::string& path,
                          const std::vector<RolloutRecord>& records) {
  ASSIGN_OR_RETURN(JsonLinesWriter writer, JsonLinesWriter::Open(path));
  for (const RolloutRecord& record : records) {
    RETURN_IF_ERROR(writer.Append(ToRow(record)));
  }
  return writer.Commit();
}

}  // namespace dapd
