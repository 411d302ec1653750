#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"

namespace dapd {
namespace {

// gRPC's "errors" are mostly connections that fail and are tried again.
Severity SeverityOf(gpr_log_severity severity) {
  return severity == GPR_LOG_SEVERITY_ERROR ? Severity::kWarning
                                            : Severity::kInfo;
}

void LogMessage(gpr_log_func_args* message) {
  Log(SeverityOf(message->severity),
      absl::StrCat("gRPC: ",
                   std::filesystem::path(message->file).filename().string(),
                   ":",
                   message->line,
                   ": ",
                   message->message));
}

}  // namespace

void LogWhatGrpcSays() { ::gpr_set_log_function(LogMessage); }

}  // namespace dapd
