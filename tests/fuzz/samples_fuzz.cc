// Input: recorded samples, JSON Lines as `dapd replay` reads them.
// Accepted ids are in the vocabulary, and samples stay the same when they are
// written and read.
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
      ReadSampleRows(folder.Write("samples.jsonl", text), kVocabSize);
  if (!samples.ok()) return;
  std::string written;
  for (const SampleRow& row : *samples) {
    const Sample& sample = row.sample;
    for (const auto* ids : {&sample.rollout_ids, &sample.reference_ids}) {
      for (const int32_t id : *ids) {
        Check(id >= 0 && id < kVocabSize, "ids lie in the vocabulary");
      }
    }
    Check(row.sampler_logprobs.empty() ||
              row.sampler_logprobs.size() == sample.rollout_ids.size(),
          "one log-probability for each token");
    nlohmann::json line = {{"id", sample.id},
                           {"problem", sample.problem},
                           {"reference", sample.reference},
                           {"rollout_ids", sample.rollout_ids},
                           {"reference_ids", sample.reference_ids},
                           {"sampler_logprobs", row.sampler_logprobs},
                           {"left_out", row.is_left_out},
                           {"answer", row.answer},
                           {"feedback", row.feedback}};
    if (sample.material != nullptr) {
      line["material"] = MaterialJson(*sample.material).dump();
    }
    written += line.dump() + "\n";
  }
  const auto again =
      ReadSampleRows(folder.Write("again.jsonl", written), kVocabSize);
  Check(again.ok() && again->size() == samples->size(), "no sample is lost");
  for (size_t i = 0; i < samples->size(); ++i) {
    const Sample& a = (*samples)[i].sample;
    const Sample& b = (*again)[i].sample;
    Check(a.id == b.id && a.problem == b.problem &&
              a.reference == b.reference && a.rollout_ids == b.rollout_ids &&
              a.reference_ids == b.reference_ids &&
              a.source().Key() == b.source().Key() &&
              (*samples)[i].sampler_logprobs == (*again)[i].sampler_logprobs,
          "a sample survives");
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
