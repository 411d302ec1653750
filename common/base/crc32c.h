// CRC-32C (Castagnoli, RFC 3720): finds every burst of up to 32 damaged bits.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace dapd {

uint32_t Crc32c(absl::string_view bytes);

}  // namespace dapd
