// Input: a Parquet file.
// It is read or refused; reading it twice gives the same rows.
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/data/dataset.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

void Run(absl::string_view bytes) {
  static const ScratchFolder folder;
  const std::string path = folder.Write("rows.parquet", bytes);
  const DatasetOptions options = {.on_bad_row =
                                      DatasetOptions::OnBadRow::kFail};
  const auto first = ReadDataset(path, options);
  const auto second = ReadDataset(path, options);
  Check(first.ok() == second.ok(), "a file is read or refused each time");
  if (!first.ok()) return;
  Check(!first->problems.empty(), "an accepted file has rows");
  Check(first->digest == second->digest, "rows are the same each time");
  for (const Problem& problem : first->problems) {
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
