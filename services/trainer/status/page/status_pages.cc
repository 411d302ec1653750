#include "services/trainer/status/page/status_pages.h"

#include "common/base/json.h"
#include "common/rpc/status_json.h"
#include "services/trainer/status/page/page.h"
#include "services/trainer/status/status_message.h"

namespace dapd {
namespace {

constexpr char kJson[] = "application/json";

// Invalid UTF-8, for example in a worker's error text, must not cost the whole
// page.
std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::map<std::string, HttpPage> StatusPages(const TrainerStatus* status,
                                            const RunHistory* history,
                                            const RunAnswers* answers) {
  return {
      {"/",
       {"text/html; charset=utf-8",
        [] { return StatusPageHtml(); },
        StatusPagePolicy()}},
      {"/status.json",
       {kJson, [status] { return Dump(StatusJson(StatusMessage(*status))); }}},
      {"/history.json", {kJson, [history] { return Dump(history->ToJson()); }}},
      {"/answers.json",
       {kJson, [answers] { return Dump(ToJson(answers->Get())); }}}};
}

}  // namespace dapd
