#include "common/base/end_for_restart.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"

namespace dapd {

void EndForRestart(const absl::Status& why) {
  LogError(absl::StrCat("this process can no longer compute (",
                        std::string(why.message()),
                        "); it exits so that it can be restarted"));
  ::_exit(static_cast<int>(ExitCode::kRestart));
}

}  // namespace dapd
