#include "services/cli/serve/api_error.h"

#include <utility>

#include "absl/strings/cord.h"

#include "common/base/utf8.h"

namespace dapd {
namespace {

constexpr absl::string_view kParameterPayload = "dapd.serve.parameter";

const char* ErrorTypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

absl::Status ParameterError(absl::string_view parameter,
                            const std::string& message) {
  absl::Status error = absl::InvalidArgumentError(message);
  error.SetPayload(kParameterPayload, absl::Cord(parameter));
  return error;
}

int HttpStatusOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

nlohmann::ordered_json ErrorBody(const absl::Status& error) {
  const int http_status = HttpStatusOf(error);
  nlohmann::ordered_json parameter = nullptr;
  if (const auto named = error.GetPayload(kParameterPayload)) {
    parameter = ToUtf8(std::string(*named));
  }
  return {{"error",
           {{"message", ToUtf8(std::string(error.message()))},
            {"type", ErrorTypeOf(http_status)},
            {"param", std::move(parameter)},
            {"code", nullptr}}}};
}

}  // namespace dapd
