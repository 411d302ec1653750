// The errors of `dapd serve`, in the form of OpenAI's API.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/base/json.h"

namespace dapd {

// Returns INVALID_ARGUMENT that names the request's parameter as its cause.
absl::Status ParameterError(absl::string_view parameter,
                            const std::string& message);

// Returns the HTTP status for `error`: INVALID_ARGUMENT 400, UNAUTHENTICATED
// 401, NOT_FOUND 404, RESOURCE_EXHAUSTED 429, UNAVAILABLE 503,
// DEADLINE_EXCEEDED 504, CANCELLED 499 (the client has left, so it is only
// counted), anything else 500.
int HttpStatusOf(const absl::Status& error);

// Returns {"error": {"message", "type", "param", "code"}}.
nlohmann::ordered_json ErrorBody(const absl::Status& error);

}  // namespace dapd
