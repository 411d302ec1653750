// Carries a Status through code that reports errors by exceptions, such as
// LibTorch. CatchTorch (common/tensor/torch_bridge.h) converts it back.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

class StatusError : public std::exception {
 public:
  // `status` must not be OK.
  explicit StatusError(absl::Status status)
      : status_(std::move(status)), text_(status_.message()) {}

  const char* what() const noexcept override { return text_.c_str(); }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
  std::string text_;
};

inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> result) {
  ThrowIfError(result.status());
  return *std::move(result);
}

}  // namespace dapd
