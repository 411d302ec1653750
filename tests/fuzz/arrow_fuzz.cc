// Input: a stream or a file in Arrow's format.
// It is read or refused; reading it twice gives the same rows.
#include "tests/fuzz/input.h"
#include "tests/fuzz/read_twice.h"

namespace dapd {
namespace {

void Run(absl::string_view bytes) {
  static const ScratchFolder folder;
  ReadTextsTwice(folder.Write("rows.arrow", bytes));
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
