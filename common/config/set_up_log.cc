#include "common/config/set_up_log.h"

#include "common/base/log.h"

namespace dapd {
namespace {

Severity ParseLevel(const std::string& level) {
  if (level == "error") return Severity::kError;
  return level == "warning" ? Severity::kWarning : Severity::kInfo;
}

}  // namespace

void SetUpLog(const std::string& service, const Config& config, int64_t rank) {
  SetLog(
      {.format =
           config.log.format == "json" ? LogFormat::kJson : LogFormat::kText,
       .min_severity = ParseLevel(config.log.level),
       .source = {.service = service, .run = config.run.name, .rank = rank}});
}

}  // namespace dapd
