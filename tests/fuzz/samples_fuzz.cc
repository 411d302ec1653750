// Input: recorded samples, JSON Lines as `dapd replay` reads them.
// Accepted ids lie in the vocabulary, and samples survive being written.
#include "common/base/check.h"
#include "common/base/json_lines.h"
#include "common/data/sample_rows.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

constexpr int64_t kVocabSize = 1000;

void Run(absl::string_view text) {
  static const ScratchFolder folder;
  const auto samples =
      ReadSamples(folder.Write("samples.jsonl", text), kVocabSize);
  if (!samples.ok()) return;
  std::string written;
  for (const Sample& sample : *samples) {
    for (const int32_t id : sample.rollout_ids) {
      Check(id >= 0 && id < kVocabSize, "ids lie in the vocabulary");
    }
    written += nlohmann::json{{"id", sample.id},
                              {"problem", sample.problem},
                              {"reference", sample.reference},
                              {"rollout_ids", sample.rollout_ids}}
                   .dump() +
               "\n";
  }
  const auto again =
      ReadSamples(folder.Write("again.jsonl", written), kVocabSize);
  Check(again.ok() && again->size() == samples->size(), "no sample is lost");
  for (size_t i = 0; i < samples->size(); ++i) {
    const Sample& a = (*samples)[i];
    const Sample& b = (*again)[i];
    Check(a.id == b.id && a.problem == b.problem &&
              a.reference == b.reference && a.rollout_ids == b.rollout_ids,
          "a sample survives");
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
