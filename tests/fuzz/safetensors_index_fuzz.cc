// Input: model.safetensors.index.json of a folder with two good shards.
// Nothing outside the folder is opened, and an accepted index leads to every
// tensor of the shards that it names.
#include <filesystem>

#include "common/base/check.h"
#include "common/tensor/safetensors_folder.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

std::string Shard(const std::string& name) {
  HostTensor tensor = HostTensor::Allocate(DType::kUInt8, {2}).value();
  tensor.data.get()[0] = 1;
  tensor.data.get()[1] = 2;
  return SerializeSafetensors({{name, tensor}}, {}).value();
}

void Run(absl::string_view json) {
  static const ScratchFolder& folder = *[] {
    auto* made = new ScratchFolder();
    made->Write("one.safetensors", Shard("a"));
    made->Write("two.safetensors", Shard("b"));
    return made;
  }();
  const auto shards = ParseSafetensorsIndex(json, "index");
  if (shards.ok()) {
    for (const auto& [name, shard] : *shards) {
      const std::filesystem::path path(folder.path() + "/" + shard);
      Check(path.lexically_normal().parent_path().lexically_relative(
                folder.path()) == "." ||
                shard == ".",
            "a shard lies in the folder");
    }
  }
  folder.Write("model.safetensors.index.json", json);
  const auto opened = SafetensorsFolder::Open(folder.path());
  Check(!opened.ok() || shards.ok(), "a refused index opens nothing");
  if (!opened.ok()) return;
  for (const auto& [name, path] : opened->paths()) {
    Check(opened->Read(name).value().bytes().size() == 2,
          "every tensor can be read");
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
