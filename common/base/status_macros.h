// RETURN_IF_ERROR and ASSIGN_OR_RETURN: hand an absl::Status up the stack.
//
//   RETURN_IF_ERROR(WriteManifest(folder));
//   ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(folder));
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)                  \
  do {                                               \
    absl::Status status_macro_result = (expression); \
    if (!status_macro_result.ok()) {                 \
      return status_macro_result;                    \
    }                                                \
  } while (false)

#define DAPD_MACRO_JOIN_INNER(left, right) left##right
#define DAPD_MACRO_JOIN(left, right) DAPD_MACRO_JOIN_INNER(left, right)

#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_IMPL(                     \
      DAPD_MACRO_JOIN(status_or_, __LINE__), target, expression)

#define ASSIGN_OR_RETURN_IMPL(holder, target, expression) \
  auto holder = (expression);                             \
  if (!holder.ok()) {                                     \
    return std::move(holder).status();                    \
  }                                                       \
  target = std::move(holder).value()
