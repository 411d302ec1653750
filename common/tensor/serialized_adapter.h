// Defines the form in which an adapter is sent: the content of the two files of
// its PEFT folder. It knows neither LibTorch nor protobuf, so that both kinds
// of files can use it.
#pragma once

#include <string>

#include "common/base/content_digest.h"
#include "common/base/shared_bytes.h"

namespace dapd {

struct SerializedAdapter {
  std::string config_json;  // adapter_config.json
  SharedBytes tensors;      // adapter_model.safetensors
  std::string digest;       // digest of `tensors`, then `config_json`
  bool verified = false;    // the receiver has compared the digest with the
                            // bytes
  DigestKind digest_kind = DigestKind::kSha256;  // kind of `digest`
};

}  // namespace dapd
