// Input: adapter_config.json.
// What is accepted is usable and survives being written.
#include <cmath>

#include "common/base/check.h"
#include "common/model/spec/lora_config.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

void Run(absl::string_view json) {
  const auto lora = ParseLoraConfig(std::string(json), "input");
  if (!lora.ok()) return;
  Check(lora->rank > 0 && std::isfinite(static_cast<float>(lora->scale())),
        "single precision holds the scale");
  Check(!lora->targets.empty(), "there is something to adapt");
  const std::string written =
      FormatLoraConfig(*lora, "/models/" + std::string(json.substr(0, 8)));
  const LoraConfig again = ParseLoraConfig(written, "written").value();
  Check(again.rank == lora->rank && again.alpha == lora->alpha &&
            again.targets == lora->targets,
        "settings survive");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
