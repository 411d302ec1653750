// Input: manifest.json of a checkpoint's folder with two files.
// Only the right manifest is accepted.
#include "common/base/check.h"
#include "common/base/files.h"
#include "services/trainer/record/manifest.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

void Run(absl::string_view json) {
  static const ScratchFolder folder;
  static const std::string& right = *[] {
    folder.Write("state.json", "{\"step\": 5}");
    folder.Write("optimizer.safetensors", "moments");
    Check(WriteManifest(folder.path()).ok(), "a manifest can be written");
    Check(VerifyManifest(folder.path()).ok(), "it is right");
    return new std::string(
        ReadFile(folder.path() + "/manifest.json", 1 << 20).value());
  }();
  folder.Write("manifest.json", json);
  Check(VerifyManifest(folder.path()).ok() == (json == right),
        "only the right manifest is accepted");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
