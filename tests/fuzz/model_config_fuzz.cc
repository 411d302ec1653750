// Input: config.json, a zero byte, generation_config.json.
// An accepted configuration has sizes that can be computed with.
#include "common/base/check.h"
#include "common/model/spec/model_config.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

void Run(InputReader input) {
  static const ScratchFolder folder;
  folder.Write("config.json", input.Text());
  const std::string generation = input.Rest();
  if (generation.empty()) {
    folder.Remove("generation_config.json");
  } else {
    folder.Write("generation_config.json", generation);
  }
  const auto config = ReadModelConfig(folder.path());
  if (!config.ok()) return;
  Check(config->NumParameters() > 0, "parameters can be counted");
  Check(config->num_heads % config->num_kv_heads == 0, "heads share evenly");
  for (const ProjectionRecipe& projection :
       LayerRecipeOf(*config, /*layer=*/0).projections) {
    Check(projection.in > 0 && projection.out > 0, "a projection has a size");
  }
  Check(NumLoraParameters(*config, 64, ProjectionNames(*config)) > 0,
        "an adapter can be counted");
  Check(!config->eos_token_ids.empty(), "answers can end");
  for (const int64_t id : config->eos_token_ids) {
    Check(id >= 0 && id < config->vocab_size, "the end token exists");
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size));
  return 0;
}
