// Reads and writes an adapter's PEFT directory and its wire form.

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/adapter_check.h"
#include "common/tensor/safetensors_header.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

constexpr char kConfigFile[] = "adapter_config.json";
constexpr char kDigestKey[] = "dapd_sha256";
constexpr uint64_t kMaxTensorBytes = uint64_t{16} << 30;

TensorEntries EntriesOf(const NamedTensors& tensors) {
  TensorEntries entries;
  for (const auto& [name, tensor] : tensors) {
    entries[name] = {.dtype = tensor.dtype, .shape = tensor.shape};
  }
  return entries;
}

// Returns a finite tensor in float32.
absl::StatusOr<at::Tensor> ToParameter(const HostTensor& host,
                                       const std::string& what) {
  if (!AllFinite(host)) {
    return DataError(absl::StrCat(what, " holds a value that is not finite"));
  }
  return ToTorch(host).to(at::kFloat);
}

// Returns a module's pair in the adapter of one rank and scale that holds all
// modules.
LoraPair Unified(LoraPair pair,
                 const PeftModule& module,
                 const LoraConfig& lora) {
  if (const double factor = module.scale() / lora.scale();
      factor != 1.0 && lora.scale() != 0.0) {
    pair.b = pair.b * factor;
  }
  if (const int64_t missing = lora.rank - module.rank; missing > 0) {
    pair.a = at::constant_pad_nd(pair.a, {0, 0, 0, missing});
    pair.b = at::constant_pad_nd(pair.b, {0, missing});
  }
  return pair;
}

// Returns float32 tensors on the CPU as one tensor [N] for N elements in all.
// If they lie one behind the other in memory, as in the wire form, it is no
// copy.
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

// Moves all tensors by one copy, because each copy out of memory that is not
// page-locked waits for the device. Throws the device's error, which may come
// from an earlier launch.
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

// Makes the adapter from tensors that have passed CheckEntries.
absl::StatusOr<Adapter> AssembleAdapter(const PeftConfig& peft,
                                        NamedTensors tensors,
                                        const ModelConfig& model,
                                        at::Device device,
                                        const std::string& where) {
  std::map<std::string, HostTensor> by_name;
  for (auto& [name, tensor] : tensors) by_name.emplace(name, std::move(tensor));
  Adapter adapter = MakeEmptyAdapter(model, peft.lora);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerRecipe recipe = LayerRecipeOf(model, layer);
    for (const Projection projection : recipe.All()) {
      const ProjectionRecipe& own = recipe[projection];
      if (std::ranges::count(peft.lora.targets, own.name) == 0) continue;
      const auto l = static_cast<size_t>(layer);
      const auto t = IndexOf(projection);
      LoraPair& pair = adapter.layers[l][t];
      const auto& module = peft.layers[l][t];
      if (!module.has_value()) {
        pair.a = at::zeros({peft.lora.rank, own.in}, at::kFloat);
        pair.b = at::zeros({own.out, peft.lora.rank}, at::kFloat);
        continue;
      }
      const std::string name =
          absl::StrCat(kAdapterPrefix, ModulePath(layer, own.module));
      for (const auto& [suffix, out] :
           {std::pair(kLoraA, &pair.a), std::pair(kLoraB, &pair.b)}) {
        const std::string tensor = absl::StrCat(name, suffix);
        ASSIGN_OR_RETURN(
            *out,
            ToParameter(by_name.at(tensor),
                        absl::StrCat(where, ": tensor '", tensor, "'")));
      }
      pair = Unified(std::move(pair), *module, peft.lora);
    }
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

// Returns the SHA-256 over the tensors' bytes, in the order of the file, and
// over the configuration's statements about them.
std::string FileDigest(const std::function<void(Sha256&)>& update_with_tensors,
                       const LoraConfig& lora) {
  Sha256 hash;
  update_with_tensors(hash);
  hash.Update(absl::StrFormat("r=%d alpha=%.17g", lora.rank, lora.alpha));
  for (const std::string& target : lora.targets) {
    hash.Update(absl::StrCat(" ", target));
  }
  return hash.HexDigest();
}

// A file without a digest comes from another program, so there is nothing to
// compare.
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
  ASSIGN_OR_RETURN(const PeftConfig peft, CheckAdapterFiles(folder, model));
  const std::string path = JoinPath(folder, kAdapterTensorFile);
  auto bytes = ReadFile(path, kMaxTensorBytes);
  if (!bytes.ok()) return WithExitCode(bytes.status(), ExitCode::kData);
  RETURN_IF_ERROR(CheckFileDigest(*bytes, peft.lora, path));
  ASSIGN_OR_RETURN(NamedTensors tensors, ParseSafetensors(*bytes, path));
  // This is checked again, because the file may have been replaced meanwhile.
  RETURN_IF_ERROR(
      CheckAdapterTensors(peft, EntriesOf(tensors), model, path).status());
  return AssembleAdapter(peft, std::move(tensors), model, device, path);
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
  RETURN_IF_ERROR(WriteSafetensors(JoinPath(folder, kAdapterTensorFile),
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
  // From a device all tensors come by one copy.
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
  const std::string where = "received adapter";
  ASSIGN_OR_RETURN(const PeftConfig peft,
                   ParsePeftConfig(serialized.config_json, model, where));
  ASSIGN_OR_RETURN(NamedTensors tensors,
                   ShareSafetensors(serialized.tensors, where));
  ASSIGN_OR_RETURN(const std::vector<std::string> copies,
                   CheckAdapterTensors(peft, EntriesOf(tensors), model, where));
  if (!copies.empty()) {
    return DataError(absl::StrCat(
        where, ": tensor '", copies.front(), "' is one of the base"));
  }
  return AssembleAdapter(peft, std::move(tensors), model, device, where);
}

}  // namespace dapd
