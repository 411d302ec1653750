#include "services/cli/answer_record.h"

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json.h"

namespace dapd {

nlohmann::ordered_json ToJson(const AnswerRecord& record) {
  nlohmann::ordered_json row = {{"id", record.id},
                                {"index", record.index},
                                {"sample", record.sample},
                                {"text", record.text},
                                {"answer", record.answer},
                                {"extracted", record.grade.extracted},
                                {"has_box", record.grade.has_box},
                                {"correct", record.grade.correct}};
  if (record.given_grade.has_value()) AddGivenGrade(*record.given_grade, &row);
  row["tokens"] = record.tokens;
  row["finish_reason"] = NameOf(record.finish_reason);
  row["repeated"] = record.repeated;
  return row;
}

void AddGivenGrade(const GraderResult& grade, nlohmann::ordered_json* row) {
  if (grade.ungraded.has_value()) {
    (*row)["ungraded"] = NameOf(*grade.ungraded);
    return;
  }
  (*row)["score"] = grade.score;
  if (!grade.feedback.empty()) (*row)["feedback"] = grade.feedback;
}

absl::StatusOr<AnswerRecord> ParseAnswerRecord(const nlohmann::json& row,
                                               const std::string& where) try {
  AnswerRecord record;
  row.at("id").get_to(record.id);
  row.at("text").get_to(record.text);
  row.at("index").get_to(record.index);
  row.at("sample").get_to(record.sample);
  row.at("has_box").get_to(record.grade.has_box);
  row.at("correct").get_to(record.grade.correct);
  row.at("tokens").get_to(record.tokens);
  row.at("repeated").get_to(record.repeated);
  const auto reason = row.at("finish_reason").get<std::string>();
  const auto known = FinishReasonOf(reason);
  if (!known.has_value() || record.index < 0 || record.sample < 0 ||
      record.tokens < 1) {
    return DataError(absl::StrCat(where, ": numbers that no answer can have"));
  }
  record.finish_reason = *known;
  return record;
} catch (const nlohmann::json::exception& error) {
  return DataError(absl::StrCat(
      where, ": not an answer written by dapd eval: ", JsonProblem(error)));
}

}  // namespace dapd
