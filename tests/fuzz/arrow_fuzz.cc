// Input: a stream or a file of Arrow's.
// It is read or refused; reading it twice gives the same rows.
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/read_twice.h"

namespace dapd {
namespace {

void Run(absl::string_view bytes) {
  static const ScratchFolder folder;
  const auto data = ReadTwice(folder.Write("rows.arrow", bytes));
  if (!data.ok()) return;
  for (const Problem& problem : data->problems) {
    for (const std::string* text :
         {&problem.id, &problem.problem, &problem.solution, &problem.answer}) {
      Check(IsUtf8(*text), "accepted texts are UTF-8");
    }
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
