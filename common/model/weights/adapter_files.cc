// An adapter's PEFT directory and its wire form.

#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weight_names.h"
#include "common/tensor/safetensors_header.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

constexpr char kConfigFile[] = "adapter_config.json";
constexpr char kTensorFile[] = "adapter_model.safetensors";
constexpr char kPickleFile[] = "adapter_model.bin";  // PEFT's until 0.7
constexpr char kPrefix[] = "base_model.model.";
constexpr char kDigestKey[] = "dapd_sha256";
constexpr uint64_t kMaxConfigBytes = 1 << 20;
constexpr uint64_t kMaxTensorBytes = uint64_t{16} << 30;

absl::StatusOr<at::Tensor> ToParameter(const HostTensor& host,
                                       const std::vector<int64_t>& shape,
                                       const std::string& what) {
  if (host.shape != shape) {
    return DataError(absl::StrCat(what,
                                  " has shape [",
                                  absl::StrJoin(host.shape, ", "),
                                  "], expected [",
                                  absl::StrJoin(shape, ", "),
                                  "]"));
  }
  if (host.dtype != DType::kFloat32 && host.dtype != DType::kBFloat16 &&
      host.dtype != DType::kFloat16) {
    return DataError(absl::StrCat(what, " has dtype ", DTypeName(host.dtype)));
  }
  if (!AllFinite(host)) {
    return DataError(absl::StrCat(what, " holds a value that is not finite"));
  }
  return ToTorch(host).to(at::kFloat);
}

// Float32 tensors on the CPU as one, [N] for N elements in all: where they lie
// one behind the other in memory, as in the wire form, without a copy.
at::Tensor Together(const std::vector<at::Tensor>& tensors) {
  int64_t total = 0;
  bool adjoin = true;
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) {
    adjoin = adjoin && tensor.is_contiguous() &&
             tensor.const_data_ptr<float>() ==
                 tensors[0].const_data_ptr<float>() + total;
    total += tensor.numel();
    flat.push_back(tensor.flatten());
  }
  return adjoin ? at::from_blob(tensors[0].data_ptr(), {total}, at::kFloat)
                : at::cat(flat);
}

// By one copy: each out of memory that is not page-locked waits for the device.
// Throws what the device answers, also to what was launched before.
void MoveTo(at::Device device, Adapter* adapter) {
  const std::vector<at::Tensor> tensors = adapter->Tensors();
  if (device.is_cpu() || tensors.empty()) return;
  const at::Tensor all = Together(tensors).to(device);
  int64_t next = 0;
  for (auto& layer : adapter->layers) {
    for (LoraPair& pair : layer) {
      if (!pair.a.defined()) continue;
      for (at::Tensor* tensor : {&pair.a, &pair.b}) {
        const int64_t size = tensor->numel();
        *tensor = all.narrow(0, next, size).view(tensor->sizes());
        next += size;
      }
    }
  }
}

absl::StatusOr<Adapter> AssembleAdapter(const LoraConfig& lora,
                                        NamedTensors tensors,
                                        const ModelConfig& model,
                                        at::Device device,
                                        const std::string& where) {
  std::map<std::string, HostTensor> by_name;
  for (auto& [name, tensor] : tensors) {
    if (!absl::StartsWith(name, kPrefix)) {
      return DataError(absl::StrCat(where,
                                    ": tensor '",
                                    name,
                                    "' lacks PEFT's prefix ",
                                    kPrefix,
                                    "; loaders would silently skip it"));
    }
    by_name.emplace(name, std::move(tensor));
  }
  Adapter adapter;
  adapter.config = lora;
  adapter.layers.resize(static_cast<size_t>(model.num_layers));
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    for (const Projection target : lora.targets) {
      LoraPair& pair =
          adapter
              .layers[static_cast<size_t>(layer)][static_cast<size_t>(target)];
      const std::string module =
          absl::StrCat(kPrefix, ProjectionModule(layer, target));
      const auto take = [&](const char* suffix,
                            const std::vector<int64_t>& shape,
                            at::Tensor* out) -> absl::Status {
        const std::string name = absl::StrCat(module, suffix);
        const auto found = by_name.find(name);
        if (found == by_name.end()) {
          return DataError(absl::StrCat(where,
                                        ": tensor '",
                                        name,
                                        "' is missing; if the adapter is meant "
                                        "to leave some layers out, ",
                                        kMergeInstead));
        }
        ASSIGN_OR_RETURN(
            *out,
            ToParameter(found->second,
                        shape,
                        absl::StrCat(where, ": tensor '", name, "'")));
        by_name.erase(found);
        return absl::OkStatus();
      };
      RETURN_IF_ERROR(take(
          ".lora_A.weight", {lora.rank, ProjectionIn(model, target)}, &pair.a));
      RETURN_IF_ERROR(take(".lora_B.weight",
                           {ProjectionOut(model, target), lora.rank},
                           &pair.b));
    }
  }
  if (!by_name.empty()) {
    return DataError(absl::StrCat(where,
                                  ": tensor '",
                                  by_name.begin()->first,
                                  "' belongs to no target ",
                                  "module of this model (",
                                  model.num_layers,
                                  " layers)"));
  }
  RETURN_IF_ERROR(CatchTorch([&] {
    MoveTo(device, &adapter);
    return absl::OkStatus();
  }));
  return adapter;
}

absl::StatusOr<NamedTensors> ToNamedTensors(const Adapter& adapter) {
  NamedTensors tensors;
  const std::vector<std::string> names = adapter.Names();
  const std::vector<at::Tensor> values = adapter.Tensors();
  for (size_t i = 0; i < names.size(); ++i) {
    ASSIGN_OR_RETURN(HostTensor host, FromTorch(values[i]));
    tensors.emplace_back(names[i], std::move(host));
  }
  return tensors;
}

// SHA-256 over the tensors' bytes, in the order of the file, and over what the
// configuration says about them.
std::string FileDigest(const std::function<void(Sha256&)>& update_with_tensors,
                       const LoraConfig& lora) {
  Sha256 hash;
  update_with_tensors(hash);
  hash.Update(absl::StrFormat("r=%d alpha=%.17g", lora.rank, lora.alpha));
  for (const Projection target : lora.targets) {
    hash.Update(absl::StrCat(" ", ProjectionName(target)));
  }
  return hash.HexDigest();
}

// A file without a digest comes from another program: nothing to compare with.
absl::Status CheckFileDigest(absl::string_view bytes,
                             const LoraConfig& lora,
                             const std::string& where) {
  ASSIGN_OR_RETURN(const SafetensorsParts parts,
                   SplitSafetensors(bytes, where));
  const auto written = parts.header.metadata.find(kDigestKey);
  if (written == parts.header.metadata.end() ||
      written->second ==
          FileDigest([&](Sha256& hash) { hash.Update(parts.data); }, lora)) {
    return absl::OkStatus();
  }
  return DataError(absl::StrCat(
      where,
      " and its ",
      kConfigFile,
      " are not what was written: a weight, r, lora_alpha or a target has "
      "changed; use an undamaged copy or, if the change was intended, remove ",
      kDigestKey,
      " from the file's metadata"));
}

}  // namespace

absl::StatusOr<Adapter> ReadAdapter(const std::string& folder,
                                    const ModelConfig& model,
                                    at::Device device) {
  const std::string config_path = JoinPath(folder, kConfigFile);
  const std::string tensor_path = JoinPath(folder, kTensorFile);
  auto config_text = ReadFile(config_path, kMaxConfigBytes);
  if (!config_text.ok()) {
    return WithExitCode(config_text.status(), ExitCode::kData);
  }
  ASSIGN_OR_RETURN(const LoraConfig lora,
                   ParseLoraConfig(*config_text, config_path));
  if (!FileExists(tensor_path) && FileExists(JoinPath(folder, kPickleFile))) {
    return DataError(absl::StrCat(folder,
                                  " has its tensors in ",
                                  kPickleFile,
                                  ", which is not read; PEFT's save_pretrained "
                                  "writes them as ",
                                  kTensorFile));
  }
  auto bytes = ReadFile(tensor_path, kMaxTensorBytes);
  if (!bytes.ok()) return WithExitCode(bytes.status(), ExitCode::kData);
  RETURN_IF_ERROR(CheckFileDigest(*bytes, lora, tensor_path));
  ASSIGN_OR_RETURN(NamedTensors tensors, ParseSafetensors(*bytes, tensor_path));
  return AssembleAdapter(lora, std::move(tensors), model, device, tensor_path);
}

absl::Status WriteAdapter(const std::string& folder,
                          const Adapter& adapter,
                          const std::string& base_model_path) {
  RETURN_IF_ERROR(MakeDirectories(folder));
  ASSIGN_OR_RETURN(const NamedTensors tensors, ToNamedTensors(adapter));
  const std::string digest = FileDigest(
      [&](Sha256& hash) {
        for (const auto& [name, tensor] : tensors) hash.Update(tensor.bytes());
      },
      adapter.config);
  RETURN_IF_ERROR(WriteSafetensors(JoinPath(folder, kTensorFile),
                                   tensors,
                                   {{"format", "pt"}, {kDigestKey, digest}}));
  return WriteFileAtomically(JoinPath(folder, kConfigFile),
                             FormatLoraConfig(adapter.config, base_model_path));
}

at::Tensor Flat(const Adapter& adapter) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : adapter.Tensors()) {
    parts.push_back(tensor.detach().flatten());
  }
  return at::cat(parts);
}

absl::StatusOr<AdapterLayout> LayOutAdapter(const Adapter& adapter,
                                            const std::string& base_model_path,
                                            const AllocateBytes& allocate) {
  NamedTensors shapes;
  const std::vector<std::string> names = adapter.Names();
  const std::vector<at::Tensor> tensors = adapter.Tensors();
  int64_t total = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    shapes.emplace_back(
        names[i],
        HostTensor{DType::kFloat32, tensors[i].sizes().vec(), nullptr});
    total += shapes.back().second.num_bytes();
  }
  ASSIGN_OR_RETURN(const std::string header,
                   FormatHeader(shapes, {{"format", "pt"}}));
  AdapterLayout layout;
  layout.config_json = FormatLoraConfig(adapter.config, base_model_path);
  layout.header_bytes = header.size();
  total += static_cast<int64_t>(header.size());
  ASSIGN_OR_RETURN(layout.buffer,
                   allocate
                       ? allocate(total)
                       : HostTensor::AllocateRecurring(DType::kUInt8, {total}));
  std::memcpy(layout.buffer.data.get(), header.data(), header.size());
  return layout;
}

absl::StatusOr<SerializedAdapter> SerializeAdapter(
    const Adapter& adapter,
    const std::string& base_model_path,
    DigestKind digest_kind) {
  ASSIGN_OR_RETURN(AdapterLayout layout,
                   LayOutAdapter(adapter, base_model_path));
  char* target = layout.buffer.data.get() + layout.header_bytes;
  std::vector<at::Tensor> tensors = adapter.Tensors();
  // From a device by one copy.
  if (!tensors.empty() && !tensors[0].is_cpu()) tensors = {Flat(adapter)};
  for (const at::Tensor& tensor : tensors) {
    ASSIGN_OR_RETURN(const HostTensor host, FromTorch(tensor));
    const absl::string_view bytes = host.bytes();
    std::memcpy(target, bytes.data(), bytes.size());
    target += bytes.size();
  }
  SerializedAdapter serialized;
  serialized.config_json = std::move(layout.config_json);
  serialized.tensors = SharedBytes(layout.buffer.data, layout.buffer.bytes());
  serialized.digest_kind = digest_kind;
  serialized.digest = AdapterDigest(serialized);
  return serialized;
}

std::string AdapterDigest(const SerializedAdapter& serialized) {
  ContentDigest hash(serialized.digest_kind);
  hash.Update(serialized.tensors.view());
  hash.Update(serialized.config_json);
  return hash.HexDigest();
}

absl::StatusOr<Adapter> ParseAdapter(const SerializedAdapter& serialized,
                                     const ModelConfig& model,
                                     at::Device device) {
  if (!serialized.verified && AdapterDigest(serialized) != serialized.digest) {
    return absl::DataLossError(
        "the adapter's bytes do not have the digest they were sent with");
  }
  ASSIGN_OR_RETURN(const LoraConfig lora,
                   ParseLoraConfig(serialized.config_json, "received adapter"));
  ASSIGN_OR_RETURN(NamedTensors tensors,
                   ShareSafetensors(serialized.tensors, "received adapter"));
  return AssembleAdapter(
      lora, std::move(tensors), model, device, "received adapter");
}

}  // namespace dapd
