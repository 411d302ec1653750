// Input: the README.md of a data set.
// Its configurations are read or refused; the files of a chosen configuration
// are files of the folder.
#include <algorithm>

#include "common/base/check.h"
#include "common/base/exit_code.h"
#include "common/data/data_card.h"
#include "common/data/data_folder.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

const std::vector<std::string>& Files() {
  static const auto& files =
      *new std::vector<std::string>{"a.jsonl",
                                    "b/.c/train.jsonl",
                                    "b/__d/test.jsonl",
                                    "b/e/f.jsonl",
                                    "data/train-00000-of-00001.jsonl",
                                    "test.jsonl"};
  return files;
}

void Run(absl::string_view text) {
  const DataFolder folder = {.path = "folder",
                             .files = Files(),
                             .read = [&](const std::string& name)
                                 -> absl::StatusOr<std::optional<std::string>> {
                               if (name == "README.md")
                                 return std::string(text);
                               return std::nullopt;
                             }};
  std::vector<std::string> names = {""};
  const auto configurations = ParseDataCard(CardHead(text), "README.md");
  for (size_t i = 0; configurations.ok() && i < configurations->size(); ++i) {
    names.push_back((*configurations)[i].name);
  }
  for (const std::string& name : names) {
    for (const SplitRule rule : {SplitRule::kTrain, SplitRule::kNamed}) {
      const auto chosen = FilesOfFolder(folder, {.configuration = name}, rule);
      if (!chosen.ok()) {
        Check(ExitCodeOf(chosen.status()) == ExitCode::kData,
              "a refusal is about the data");
        continue;
      }
      Check(!chosen->empty(), "a split that is chosen has files");
      for (const std::string& file : *chosen) {
        Check(std::ranges::count(Files(), file) == 1 &&
                  std::ranges::count(*chosen, file) == 1,
              "each file is one of the folder, and read once");
      }
    }
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
