#include "common/rpc/status_conversion.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/printable.h"

namespace dapd {
namespace {

constexpr size_t kMaxStatusMessageBytes = 4096;

bool IsErrorCode(int code) {
  return code >= static_cast<int>(absl::StatusCode::kCancelled) &&
         code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), WireMessage(status)};
}

std::string WireMessage(const absl::Status& status) {
  // Escaping lengthens the text; the second call mends a character that the cut
  // broke.
  return PrintableLines(
      PrintableLines(status.message()).substr(0, kMaxStatusMessageBytes));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return FromWireError(status.error_code(), status.error_message());
}

absl::Status FromWireError(int code, const std::string& message) {
  if (!IsErrorCode(code)) {
    return absl::InternalError(
        absl::StrCat("peer sent the unknown error code ", code, ": ", message));
  }
  return {static_cast<absl::StatusCode>(code), message};
}

}  // namespace dapd
