// Runs the generation engine on a model folder, for c2_decode.py,
// c5_batching.py and g2_decode.py.
//
//   dapd_decode_benchmark MODEL PRECISION DEVICE SLOTS [bulk]
//
// With bulk a GPU's products take their second form
// (kernels/cuda/bulk_product.h). Requests:
//   {"kind": "generate", "batch": B, "calls": C, "prompt": P, "new": N}
//       samples C times B greedy answers of N tokens to prompts of P made-up
//       tokens; each call ends before the next begins. Returns "seconds",
//       "step_seconds" (the median of the steps that only decode; a step is
//       one token) and "ids".
//   {"kind": "adapter", "rank": R}
//       decodes from here on with a random LoRA adapter on all projections.
//   {"kind": "score", "ids": [...]}
//       returns the "logprobs" of a text.
//   {"kind": "read"}
//       reads a GiB of memory once (on a GPU: copies it); returns "seconds",
//       and "bytes" read and written.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/generation/cpu/cpu_decode_backend.h"
#include "common/generation/cpu/mapped_memory.h"
#include "common/generation/engine.h"
#include "common/generation/make_decode_backend.h"
#include "common/kernels/parallel_for.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/placement.h"
#include "common/model/weights/weights.h"
#include "tests/benchmarks/contender.h"

namespace dapd {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// c2_decode.py makes the same prompt.
std::vector<int32_t> MakePrompt(int64_t row, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) {
    ids.push_back(static_cast<int32_t>((row * 7919 + i * 104729) % 150000));
  }
  return ids;
}

nlohmann::json Generate(GenerationEngine& engine,
                        const nlohmann::json& request) {
  const int64_t batch = request["batch"];
  const int64_t calls = request["calls"];
  std::vector<std::vector<int32_t>> ids(static_cast<size_t>(batch * calls));
  std::vector<double> decode_steps;
  const Clock::time_point start = Clock::now();
  for (int64_t call = 0; call < calls; ++call) {
    for (int64_t i = 0; i < batch; ++i) {
      const int64_t row = call * batch + i;
      const absl::Status status = engine.Submit(
          static_cast<uint64_t>(row),
          {.prompt_ids = MakePrompt(row, request["prompt"]),
           .sampling = {.temperature = 0.0, .max_new_tokens = request["new"]}});
      TORCH_CHECK(status.ok(), "[decode_benchmark] ", status.message());
    }
    while (engine.num_running() > 0) {
      const int64_t running = engine.num_running();
      const Clock::time_point step = Clock::now();
      const std::vector<SampledToken> tokens = engine.Step();
      // If all sequences have begun, this step computed only their next tokens.
      bool only_decoded = static_cast<int64_t>(tokens.size()) == running;
      for (const SampledToken& token : tokens) {
        only_decoded = only_decoded && !ids[token.id].empty();
        ids[token.id].push_back(token.token);
      }
      if (only_decoded) decode_steps.push_back(SecondsSince(step));
    }
  }
  const double seconds = SecondsSince(start);
  nlohmann::json figures = {{"seconds", seconds}, {"ids", ids}};
  if (!decode_steps.empty()) {
    const auto middle =
        decode_steps.begin() + static_cast<int64_t>(decode_steps.size() / 2);
    std::nth_element(decode_steps.begin(), middle, decode_steps.end());
    figures["step_seconds"] = *middle;
  }
  return figures;
}

nlohmann::json CopyOnDevice(at::Device device, int64_t bytes) {
  const at::Tensor from =
      at::ones({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  at::Tensor to = at::empty_like(from);
  // The copies before .item() must be complete for it to read the value.
  to.copy_(from)[0].item();
  constexpr int64_t kCopies = 20;
  const Clock::time_point start = Clock::now();
  for (int64_t i = 0; i < kCopies; ++i) to.copy_(from);
  to[0].item();
  return {{"seconds", SecondsSince(start)}, {"bytes", 2 * kCopies * bytes}};
}

nlohmann::json ReadMemory(const HugeBuffer& memory, int64_t bytes) {
  using Words = uint64_t __attribute__((vector_size(64)));
  constexpr int64_t kPiece = int64_t{1} << 20;
  const Clock::time_point start = Clock::now();
  std::vector<uint64_t> sums(static_cast<size_t>(bytes / kPiece));
  ParallelFor(at::get_num_threads(), bytes / kPiece, [&](int64_t piece) {
    const Words* words = reinterpret_cast<const Words*>(
        static_cast<const char*>(memory.data()) + piece * kPiece);
    Words sum[4] = {};
    for (size_t i = 0; i < kPiece / sizeof(Words); i += 4) {
      for (size_t j = 0; j < 4; ++j) sum[j] |= words[i + j];
    }
    sums[static_cast<size_t>(piece)] =
        sum[0][0] | sum[1][1] | sum[2][2] | sum[3][3];
  });
  uint64_t all = 0;
  for (const uint64_t sum : sums) all |= sum;
  return {{"seconds", SecondsSince(start)}, {"bytes", bytes}, {"all", all}};
}

// Counts all projections and the head as the device's backend keeps them.
int64_t WeightBytes(const ModelWeights& weights) {
  int64_t bytes = weights.head.nbytes();
  for (const LayerWeights& layer : weights.layers) {
    for (const at::Tensor& weight : layer.weight) bytes += weight.nbytes();
  }
  return bytes;
}

std::shared_ptr<const Adapter> RandomAdapter(const ModelConfig& model,
                                             int64_t rank,
                                             at::Device device) {
  LoraConfig lora;
  lora.rank = rank;
  lora.alpha = static_cast<double>(2 * rank);
  const auto adapter = std::make_shared<Adapter>(
      MakeFreshAdapter(model, lora, /*seed=*/1, device));
  for (auto& layer : adapter->layers) {
    for (LoraPair& pair : layer) {
      if (pair.b.defined()) pair.b.normal_(0.0, 1e-3);
    }
  }
  return adapter;
}

int Main(int argc, char** argv) {
  const bool is_bulk = argc == 6 && std::string(argv[5]) == "bulk";
  if (argc != 5 && !is_bulk) {
    std::cerr << "usage: dapd_decode_benchmark MODEL PRECISION DEVICE SLOTS "
                 "[bulk]\n";
    return 2;
  }
  const auto precision = ParseName<Precision>(argv[2]);
  const auto choice = ParseName<DeviceChoice>(argv[3]);
  TORCH_CHECK(precision && choice, "unknown precision or device");
  const auto device = OpenDevice({.device = *choice});
  TORCH_CHECK(device.ok(), device.status().message());
  const int64_t slots = std::stoll(argv[4]);
  auto weights = LoadModelWeights(argv[1], TypeOf(*precision), *device);
  TORCH_CHECK(weights.ok(), weights.status().message());
  int64_t weight_bytes = WeightBytes(**weights);
  std::unique_ptr<DecodeBackend> backend;
  if (device->is_cpu()) {
    const std::shared_ptr<const CpuModel> model = PackModel(**weights);
    weight_bytes = model->WeightBytes();
    backend = std::make_unique<CpuDecodeBackend>(
        model, CpuDecodeBackendOptions{.slots = slots});
  } else {
    backend =
        MakeDecodeBackend(*weights, {.slots = slots, .bulk_products = is_bulk});
  }
  const ModelConfig config = (*weights)->config;
  weights->reset();
  GenerationEngine engine(std::move(backend), {});
  constexpr int64_t kReadBytes = int64_t{1} << 30;
  const HugeBuffer memory(kReadBytes);
  std::fill_n(static_cast<char*>(memory.data()), kReadBytes, char{1});
  return ServeRounds(
      {{"weight_bytes", weight_bytes}, {"threads", at::get_num_threads()}},
      [&](const std::string& line) -> nlohmann::json {
        const nlohmann::json request = nlohmann::json::parse(line);
        if (request["kind"] == "read") {
          return device->is_cpu() ? ReadMemory(memory, kReadBytes)
                                  : CopyOnDevice(*device, kReadBytes);
        }
        if (request["kind"] == "adapter") {
          engine.SetAdapter(RandomAdapter(config, request["rank"], *device));
          return nlohmann::json::object();
        }
        if (request["kind"] == "score") {
          return {
              {"logprobs",
               engine.ScoreTokens(request["ids"].get<std::vector<int32_t>>())}};
        }
        return Generate(engine, request);
      });
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) { return dapd::Main(argc, argv); }
