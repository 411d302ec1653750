#include "services/trainer/record/claim_figures.h"

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "services/trainer/record/loss_text.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json ToJson(const ClaimFigures& figures) {
  Json json = {{"none", ToJson(figures.none)}};
  if (figures.cross.has_value()) json["cross"] = ToJson(*figures.cross);
  return json;
}

Json ToJson(const std::vector<ClaimAnswer>& answers) {
  Json list = Json::array();
  for (const ClaimAnswer& answer : answers) {
    Json& json = list.emplace_back(Json{{"id", answer.id},
                                        {"tokens", answer.tokens},
                                        {"places", answer.places},
                                        {"none", answer.none}});
    if (answer.cross.has_value()) json["cross"] = *answer.cross;
  }
  return list;
}

ClaimFigures ParseClaimFigures(const Json& json) {
  ClaimFigures figures;
  figures.none = ParseInterval(json.at("none"));
  if (json.contains("cross")) figures.cross = ParseInterval(json.at("cross"));
  return figures;
}

std::vector<ClaimAnswer> ParseClaimAnswers(const Json& json) {
  std::vector<ClaimAnswer> answers;
  for (const Json& each : json) {
    ClaimAnswer& answer = answers.emplace_back();
    each.at("id").get_to(answer.id);
    each.at("tokens").get_to(answer.tokens);
    each.at("places").get_to(answer.places);
    each.at("none").get_to(answer.none);
    if (each.contains("cross")) answer.cross = each.at("cross").get<double>();
  }
  return answers;
}

std::string ClaimsText(const ClaimFigures& figures) {
  std::string text = absl::StrCat("claims None ", LossText(figures.none));
  if (figures.cross.has_value()) {
    absl::StrAppend(&text, ", Cross ", LossText(*figures.cross));
  }
  return text;
}

}  // namespace dapd
