#include "common/config/set_up_log.h"

#include "common/base/log.h"

namespace dapd {

void SetUpLog(const std::string& service, const Config& config, int64_t rank) {
  SetLog(
      {.format = config.log.format,
       .min_severity = config.log.level,
       .source = {.service = service, .run = config.run.name, .rank = rank}});
}

}  // namespace dapd
