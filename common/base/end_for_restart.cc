#include "common/base/end_for_restart.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"

namespace dapd {

void EndForRestart(const absl::Status& why) {
  LogError(absl::StrCat("this process cannot compute any more (",
                        std::string(why.message()),
                        "); it ends, to be started again"));
  ::_exit(static_cast<int>(ExitCode::kRestart));
}

}  // namespace dapd
