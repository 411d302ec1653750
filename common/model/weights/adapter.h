// A LoRA adapter (Hu et al. 2021) on the projections of every layer, and its
// PEFT directory (adapter_config.json, adapter_model.safetensors).
//
// y = x W^T + b + (alpha / rank) (x A^T) B^T, A [rank, in], B [out, rank], both
// float32. B = 0 makes an adapter that changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/model/spec/lora_config.h"
#include "common/model/spec/model_config.h"
#include "common/tensor/aten.h"
#include "common/tensor/safetensors.h"
#include "common/tensor/serialized_adapter.h"

namespace dapd {

struct LoraPair {
  at::Tensor a;  // [rank, in] float32; undefined if not a target
  at::Tensor b;  // [out, rank] float32
};

// The pairs of a layer, or their gradients, by Projection.
using LoraLayer = std::vector<LoraPair>;

struct Adapter {
  LoraConfig config;
  std::vector<LoraLayer> layers;
  // The modules of these projections in the same order:
  // "model.layers.0.self_attn.q_proj".
  std::vector<std::vector<std::string>> modules;

  // Returns all defined tensors in the fixed order layer, projection, A before
  // B.
  std::vector<at::Tensor> Tensors() const;
  // Returns their PEFT names in this order:
  // base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
  std::vector<std::string> Names() const;
  int64_t NumModules() const;
  // Returns a deep copy without autograd history.
  Adapter Clone() const;
};

// Returns an adapter of `lora` for `model` without tensors.
Adapter MakeEmptyAdapter(const ModelConfig& model, const LoraConfig& lora);

// Returns an adapter of `lora` for `model` whose tensors have no values yet.
Adapter MakeUnsetAdapter(const ModelConfig& model,
                         const LoraConfig& lora,
                         at::Device device);

// Returns PEFT's default start: A Kaiming-uniform with a = sqrt(5), i.e.
// uniform in +-1/sqrt(in), from a CPU generator seeded with `seed`; B zero.
Adapter MakeFreshAdapter(const ModelConfig& model,
                         const LoraConfig& lora,
                         uint64_t seed,
                         at::Device device);

// Reads a PEFT directory for `model`. Refuses everything that CheckAdapterFiles
// (adapter_check.h) refuses, a value that is not finite and, if WriteAdapter
// wrote the directory, any later change. An adapter with a rank or scale of
// each module becomes an equivalent adapter of a single rank and scale: smaller
// ranks are filled with zeros, B is multiplied by the quotient of the scales,
// and modules that are not adapted are zero. Returns CatchTorch's status if the
// copy to the device fails.
absl::StatusOr<Adapter> ReadAdapter(const std::string& folder,
                                    const ModelConfig& model,
                                    at::Device device);

// Writes a PEFT directory (written aside, synced, renamed) that peft, vLLM and
// SGLang load, with a digest of weights and settings in the metadata.
// `base_model_path` becomes base_model_name_or_path.
absl::Status WriteAdapter(const std::string& folder,
                          const Adapter& adapter,
                          const std::string& base_model_path);

// Room for an adapter's wire form: the header is written, and the bytes of the
// tensors follow it in the adapter's order.
struct AdapterLayout {
  std::string config_json;    // adapter_config.json
  HostTensor buffer;          // uint8: adapter_model.safetensors
  uint64_t header_bytes = 0;  // length of its header
};
// Returns memory for the buffer, uint8 [bytes].
using AllocateBytes = std::function<absl::StatusOr<HostTensor>(int64_t bytes)>;
// Lays out an adapter of this configuration and these shapes. An empty
// `allocate` stands for HostTensor::AllocateRecurring. Returns
// RESOURCE_EXHAUSTED if there is no memory.
absl::StatusOr<AdapterLayout> LayOutAdapter(const Adapter& adapter,
                                            const std::string& base_model_path,
                                            const AllocateBytes& allocate = {});

// Returns a copy of all tensors one behind the other, as in the wire form, [N]
// for N parameters, on the adapter's device.
at::Tensor Flat(const Adapter& adapter);

// Returns the digest that `serialized` should carry.
std::string AdapterDigest(const SerializedAdapter& serialized);
absl::StatusOr<SerializedAdapter> SerializeAdapter(
    const Adapter& adapter,
    const std::string& base_model_path,
    DigestKind digest_kind = DigestKind::kSha256);
// Reads the wire form like ReadAdapter; the result may share its memory.
// Returns DATA_LOSS if the digest differs.
absl::StatusOr<Adapter> ParseAdapter(const SerializedAdapter& serialized,
                                     const ModelConfig& model,
                                     at::Device device);

struct AdapterReport {
  int64_t modules_applied = 0;
  int64_t modules_expected = 0;
  double norm_a = 0.0;  // Frobenius norm over all A
  double norm_b = 0.0;
  double norm_delta = 0.0;  // of scale * B A over all modules
  bool changes_nothing = false;
  struct Layer {
    int64_t layer = 0;
    double norm_delta = 0.0;
  };
  std::vector<Layer> layers;
};
AdapterReport InspectAdapter(const Adapter& adapter);

}  // namespace dapd
