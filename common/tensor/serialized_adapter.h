// The wire form of an adapter: the content of the two files of its PEFT
// directory. Knows neither LibTorch nor protobuf, so both sides can hold it.
#pragma once

#include <string>

#include "common/base/content_digest.h"
#include "common/base/shared_bytes.h"

namespace dapd {

struct SerializedAdapter {
  std::string config_json;  // adapter_config.json
  SharedBytes tensors;      // adapter_model.safetensors
  std::string digest;       // of `tensors` followed by `config_json`
  bool verified = false;    // who received the bytes compared their digest
  DigestKind digest_kind = DigestKind::kSha256;  // what `digest` is
};

}  // namespace dapd
