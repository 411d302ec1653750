#include "services/trainer/step/step_plan.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(int64_t sample, const RolloutResult& result) {
  return {{"sample", sample},
          {"ids", result.ids},
          {"ended", result.finish_reason == FinishReason::kEos},
          {"policy_version", result.policy_version},
          {"adapter_digest", result.adapter_digest}};
}

BatchAnswer FromJson(const nlohmann::json& json) {
  BatchAnswer answer;
  answer.sample = json.at("sample");
  answer.result.ids = json.at("ids").get<std::vector<int32_t>>();
  answer.result.finish_reason =
      json.at("ended") ? FinishReason::kEos : FinishReason::kLength;
  answer.result.policy_version = json.at("policy_version");
  answer.result.adapter_digest = json.at("adapter_digest");
  return answer;
}

absl::Status NotFromARank(const nlohmann::json::exception& error) {
  return absl::DataLossError(
      absl::StrCat("a message of another rank cannot be read: ", error.what()));
}

}  // namespace

std::string SerializePlan(const StepPlan& plan) {
  Json recalled = Json::array();
  for (const auto& [sample, result] : plan.recalled) {
    recalled.push_back(ToJson(sample, result));
  }
  return Json{{"step", plan.step}, {"recalled", recalled}}.dump();
}

absl::StatusOr<StepPlan> ParsePlan(const std::string& bytes) try {
  ASSIGN_OR_RETURN(const nlohmann::json json,
                   ParseJson(bytes, "the plan of a step"));
  StepPlan plan;
  plan.step = json.at("step");
  for (const nlohmann::json& item : json.at("recalled")) {
    BatchAnswer answer = FromJson(item);
    plan.recalled[answer.sample] = std::move(answer.result);
  }
  return plan;
} catch (const nlohmann::json::exception& error) {
  return NotFromARank(error);
}

std::string SerializeAnswers(const std::vector<BatchAnswer>& answers) {
  Json list = Json::array();
  for (const BatchAnswer& answer : answers) {
    list.push_back(ToJson(answer.sample, answer.result));
  }
  return list.dump();
}

absl::StatusOr<std::vector<BatchAnswer>> ParseAnswers(
    const std::string& bytes) try {
  ASSIGN_OR_RETURN(const nlohmann::json json,
                   ParseJson(bytes, "the answers of a rank"));
  std::vector<BatchAnswer> answers;
  for (const nlohmann::json& item : json) answers.push_back(FromJson(item));
  return answers;
} catch (const nlohmann::json::exception& error) {
  return NotFromARank(error);
}

}  // namespace dapd
