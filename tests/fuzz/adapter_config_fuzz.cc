// Input: adapter_config.json.
// Accepted input is usable and stays the same when it is written and read.
#include <cmath>

#include "common/base/check.h"
#include "common/model/spec/peft_config.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

void Run(absl::string_view json) {
  ModelConfig model;
  model.num_layers = 2;
  const auto peft = ParsePeftConfig(std::string(json), model, "input");
  if (!peft.ok()) return;
  const LoraConfig& lora = peft->lora;
  Check(lora.rank > 0 && std::isfinite(static_cast<float>(lora.scale())),
        "single precision holds the scale");
  Check(!lora.targets.empty(), "there is something to adapt");
  for (const auto& layer : peft->layers) {
    for (const auto& module : layer) {
      if (!module.has_value()) continue;
      Check(module->rank <= lora.rank &&
                std::abs(module->scale()) <= std::abs(lora.scale()) * 1.001,
            "the one adapter holds each module");
    }
  }
  const std::string written =
      FormatLoraConfig(lora, "/models/" + std::string(json.substr(0, 8)));
  const LoraConfig again =
      ParsePeftConfig(written, model, "written").value().lora;
  Check(again.rank == lora.rank && again.alpha == lora.alpha &&
            again.targets == lora.targets,
        "settings survive");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
