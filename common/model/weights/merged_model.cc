#include "common/model/weights/merged_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/aside.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/list_folder.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/model/spec/model_card.h"
#include "common/model/weights/weight_names.h"
#include "common/tensor/safetensors_folder.h"
#include "common/tensor/safetensors_header.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSpareBytes = uint64_t{64} << 20;  // everything but tensors

// --- The tensors -------------------------------------------------------------

using Changes = std::map<std::string, const LoraPair*>;

Changes ChangesOf(const Adapter& adapter) {
  Changes changes;
  for (size_t layer = 0; layer < adapter.layers.size(); ++layer) {
    for (size_t p = 0; p < adapter.layers[layer].size(); ++p) {
      const LoraPair& pair = adapter.layers[layer][p];
      if (!pair.a.defined()) continue;
      changes[adapter.modules[layer][p] + ".weight"] = &pair;
    }
  }
  return changes;
}

absl::Status CheckChanges(const std::string& base,
                          const SafetensorsFolder& tensors,
                          const Changes& changes) {
  for (const auto& [name, pair] : changes) {
    if (!tensors.paths().contains(name)) {
      return DataError(absl::StrCat(
          base, " has no '", name, "', which the adapter changes"));
    }
    const SafetensorsEntry& entry = tensors.entry(name);
    const std::vector<int64_t> shape = {pair->b.size(0), pair->a.size(1)};
    if (entry.shape != shape) {
      return DataError(absl::StrCat(base,
                                    ": '",
                                    name,
                                    "' has shape [",
                                    absl::StrJoin(entry.shape, ", "),
                                    "], the adapter's update has [",
                                    absl::StrJoin(shape, ", "),
                                    "]"));
    }
    if (entry.dtype != DType::kFloat32 && entry.dtype != DType::kBFloat16 &&
        entry.dtype != DType::kFloat16) {
      return DataError(absl::StrCat(
          base, ": '", name, "' has dtype ", DTypeName(entry.dtype)));
    }
  }
  return absl::OkStatus();
}

struct Shard {
  std::vector<std::string> names;
  uint64_t bytes = 0;
};

// Divides the tensors in the order of the base's files; each shard is as full
// as possible and has at least one tensor.
std::vector<Shard> PlanShards(const SafetensorsFolder& tensors,
                              uint64_t max_bytes) {
  std::vector<std::tuple<std::string, uint64_t, std::string>> order;
  for (const auto& [name, path] : tensors.paths()) {
    order.emplace_back(path, tensors.entry(name).begin, name);
  }
  std::sort(order.begin(), order.end());
  std::vector<Shard> shards(1);
  for (const auto& [path, begin, name] : order) {
    const SafetensorsEntry& entry = tensors.entry(name);
    const uint64_t bytes = entry.end - entry.begin;
    if (!shards.back().names.empty() &&
        shards.back().bytes + bytes > max_bytes) {
      shards.emplace_back();
    }
    shards.back().names.push_back(name);
    shards.back().bytes += bytes;
  }
  return shards;
}

std::string ShardName(size_t index, size_t count) {
  return count == 1 ? kSafetensorsSingleFile
                    : absl::StrFormat(
                          "model-%05d-of-%05d.safetensors", index + 1, count);
}

// --- Writing -----------------------------------------------------------------

absl::StatusOr<HostTensor> Merge(const HostTensor& weight,
                                 const LoraPair& pair,
                                 double scale,
                                 const std::string& name) {
  const at::NoGradGuard no_grad;
  const at::Tensor sum =
      at::add(ToTorch(weight).to(at::kFloat), at::mm(pair.b, pair.a), scale);
  ASSIGN_OR_RETURN(HostTensor merged,
                   FromTorch(sum.to(ToScalarType(weight.dtype)).contiguous()));
  if (AllFinite(merged)) return merged;
  return DataError(absl::StrCat("'",
                                name,
                                "' with the adapter is not finite in ",
                                DTypeName(weight.dtype)));
}

// Calls `on_written` after each tensor of the shard.
absl::Status WriteShard(const std::string& path,
                        const SafetensorsFolder& tensors,
                        const Shard& shard,
                        const Changes& changes,
                        double scale,
                        absl::FunctionRef<void()> on_written) {
  NamedTensors shapes;
  for (const std::string& name : shard.names) {
    const SafetensorsEntry& entry = tensors.entry(name);
    shapes.emplace_back(name, HostTensor{entry.dtype, entry.shape, nullptr});
  }
  ASSIGN_OR_RETURN(const std::string header,
                   FormatHeader(shapes, {{"format", "pt"}}));
  ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  RETURN_IF_ERROR(file.Append(header));
  for (const std::string& name : shard.names) {
    ASSIGN_OR_RETURN(HostTensor tensor, tensors.Read(name));
    const auto change = changes.find(name);
    if (change != changes.end()) {
      ASSIGN_OR_RETURN(tensor, Merge(tensor, *change->second, scale, name));
    }
    RETURN_IF_ERROR(file.Append(tensor.bytes()));
    on_written();
  }
  return file.Commit();
}

absl::Status WriteIndex(const std::string& folder,
                        const std::vector<Shard>& shards,
                        uint64_t bytes) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const std::string& name : shards[i].names) {
      map[name] = ShardName(i, shards.size());
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}},
                                        {"weight_map", map}};
  return WriteFileAtomically(JoinPath(folder, kSafetensorsIndexFile),
                             index.dump(2) + "\n");
}

// Returns whether a file of the base also describes or serves the merged model.
bool BelongsToModel(const fs::path& path) {
  static const auto& others = *new std::set<std::string>{".safetensors",
                                                         ".bin",
                                                         ".ckpt",
                                                         ".gguf",
                                                         ".h5",
                                                         ".msgpack",
                                                         ".onnx",
                                                         ".ot",
                                                         ".pt",
                                                         ".pth"};
  const std::string name = path.filename();
  // transformers would look for an adapter beside an adapter_config.json.
  return !absl::StartsWith(name, ".") && name != kModelCardFile &&
         name != "adapter_config.json" &&
         !absl::EndsWith(name, ".index.json") &&
         !others.contains(path.extension());
}

absl::Status CopyFile(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  ASSIGN_OR_RETURN(AtomicFileWriter out, AtomicFileWriter::Open(to));
  std::string block(kFileBlockBytes, '\0');
  while (in) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    RETURN_IF_ERROR(
        out.Append({block.data(), static_cast<size_t>(in.gcount())}));
  }
  if (!in.eof()) return DataError("cannot read " + from);
  return out.Commit();
}

absl::Status CopyOtherFiles(const std::string& base,
                            const std::string& folder) {
  const auto names = ListFolder(base);
  if (!names.ok()) return WithExitCode(names.status(), ExitCode::kData);
  for (const std::string& name : *names) {
    const std::string path = JoinPath(base, name);
    std::error_code error;
    if (fs::is_regular_file(path, error) && BelongsToModel(path)) {
      RETURN_IF_ERROR(CopyFile(path, JoinPath(folder, name)));
    }
  }
  return absl::OkStatus();
}

// --- The place ---------------------------------------------------------------

// Checks that the output is new and has room.
absl::Status CheckOutput(const std::string& output, uint64_t bytes) {
  RETURN_IF_ERROR(CheckNewOutput(output));
  std::error_code error;
  const fs::path parent = fs::absolute(output, error).parent_path();
  RETURN_IF_ERROR(MakeDirectories(parent));
  const fs::space_info space = fs::space(parent, error);
  if (error || space.available >= bytes + kSpareBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s needs %.2f GiB, its disk has %.2f GiB left",
                      output,
                      static_cast<double>(bytes) / (1 << 30),
                      static_cast<double>(space.available) / (1 << 30)));
}

}  // namespace

absl::StatusOr<MergedModel> WriteMergedModel(const std::string& base,
                                             const Adapter& adapter,
                                             const std::string& output,
                                             uint64_t max_shard_bytes,
                                             const std::string& card) {
  ASSIGN_OR_RETURN(const SafetensorsFolder tensors,
                   SafetensorsFolder::Open(base));
  const Changes changes = ChangesOf(adapter);
  RETURN_IF_ERROR(CheckChanges(base, tensors, changes));
  const std::vector<Shard> shards = PlanShards(tensors, max_shard_bytes);
  MergedModel merged{.modules = static_cast<int64_t>(changes.size()),
                     .shards = static_cast<int64_t>(shards.size())};
  for (const Shard& shard : shards) merged.bytes += shard.bytes;
  // A slash at its end would put the unfinished folder inside the target.
  const std::string target =
      fs::path(output).lexically_normal().has_filename()
          ? output
          : fs::path(output).lexically_normal().parent_path().string();
  RETURN_IF_ERROR(CheckOutput(target, merged.bytes));

  const std::string aside = AsideOf(target);
  absl::Cleanup remove = [&aside] { RemoveAside(aside); };
  RETURN_IF_ERROR(CreateAsideFolder(aside));
  RETURN_IF_ERROR(CopyOtherFiles(base, aside));
  if (!card.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(JoinPath(aside, kModelCardFile), card));
  }
  Progress progress("tensors", static_cast<int64_t>(tensors.paths().size()));
  int64_t num_written = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    RETURN_IF_ERROR(WriteShard(JoinPath(aside, ShardName(i, shards.size())),
                               tensors,
                               shards[i],
                               changes,
                               adapter.config.scale(),
                               [&] { progress.Update(++num_written); }));
  }
  if (shards.size() > 1) {
    RETURN_IF_ERROR(WriteIndex(aside, shards, merged.bytes));
  }
  RETURN_IF_ERROR(SyncDirectory(aside));
  RETURN_IF_ERROR(RenameAside(aside, target));
  std::move(remove).Cancel();
  std::error_code error;
  RETURN_IF_ERROR(
      SyncDirectory(fs::absolute(target, error).parent_path().string()));
  return merged;
}

}  // namespace dapd
