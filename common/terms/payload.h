// Names what a teacher returns for each scored token
// (proto/dapd/v1/teacher.proto lists the tensors of each payload).
#pragma once

#include "common/base/enum_names.h"

namespace dapd {

enum class Payload {
  kHiddenStates,
  kLogits,
  kTopK,
};
constexpr auto NameTable(Payload) {
  return std::array{"hidden_states", "logits", "top_k"};
}

}  // namespace dapd
