#include "common/base/random_name.h"

#include <random>

#include "absl/strings/str_format.h"

namespace dapd {

std::string RandomName() {
  std::random_device device;
  std::string name;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&name, "%08x", device());
  return name;
}

}  // namespace dapd
