// Input: a safetensors file.
// The readers of files and of memory agree, and accepted input stays the same
// when it is written and read.
#include <cstring>

#include "common/base/check.h"
#include "common/tensor/safetensors.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

bool Same(const HostTensor& a, const HostTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.bytes() == b.bytes();
}

void Run(absl::string_view bytes) {
  static const ScratchFolder folder;
  const auto tensors = ParseSafetensors(bytes, "memory");
  const auto file =
      SafetensorsFile::Open(folder.Write("file.safetensors", bytes));
  Check(tensors.ok() == file.ok(), "both readers accept or both refuse");
  if (!tensors.ok()) return;
  Check(tensors->size() == file->entries().size(), "both find all tensors");
  for (const auto& [name, tensor] : *tensors) {
    Check(Same(tensor, file->Read(name).value()), "both read the same values");
  }
  const std::string written =
      SerializeSafetensors(*tensors, file->metadata()).value();
  const NamedTensors again = ParseSafetensors(written, "written").value();
  Check(again.size() == tensors->size(), "no tensor is lost");
  for (size_t i = 0; i < again.size(); ++i) {
    Check(again[i].first == (*tensors)[i].first &&
              Same(again[i].second, (*tensors)[i].second),
          "a tensor survives");
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
