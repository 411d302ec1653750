// One rank of several processes that hold a model in shards; see
// tests/oracle/test_sharding.py.
//
//   dapd_shard_rank MODEL ADAPTER INPUT OUTPUT RANK RANKS RENDEZVOUS
//
// It reads its shards of MODEL and, for each {"id", "input_ids"} line of INPUT,
// computes the logits twice: together with the other ranks, and alone with
// layers gathered from all ranks. Rank 0 writes "<id>.parallel" and
// "<id>.gathered" to OUTPUT. An empty ADAPTER means the base.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/collective/rank_follower.h"
#include "common/collective/rank_leader.h"
#include "common/model/reference/decoder.h"
#include "common/sharding/sharded_weights.h"
#include "common/sharding/tensor_parallel.h"
#include "common/tensor/aten.h"
#include "common/tensor/safetensors.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

struct Arguments {
  std::string model, adapter, input, output;
  int rank = 0;
  int ranks = 1;
  std::string rendezvous;
};

absl::StatusOr<std::unique_ptr<Collective>> JoinRanks(
    int rank, int ranks, const std::string& rendezvous) {
  if (ranks == 1) return MakeSingleRank();
  const RankOptions options{.rank = rank,
                            .world_size = ranks,
                            .rendezvous = rendezvous,
                            .identity = "shards",
                            .join_timeout = absl::Minutes(1),
                            .operation_timeout = absl::Minutes(1)};
  return rank == 0 ? StartRankLeader(options) : JoinRankLeader(options);
}

absl::Status Run(const Arguments& arguments) {
  const ShardLayout layout{arguments.rank, arguments.ranks};
  ASSIGN_OR_RETURN(
      const auto weights,
      LoadShardedWeights(arguments.model, at::kFloat, at::kCPU, layout));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Collective> collective,
      JoinRanks(arguments.rank, arguments.ranks, arguments.rendezvous));
  Adapter whole_adapter;
  Adapter adapter;
  const bool adapted = !arguments.adapter.empty();
  if (adapted) {
    ASSIGN_OR_RETURN(
        whole_adapter,
        ReadAdapter(arguments.adapter, weights->shard.config, at::kCPU));
    adapter = ShardAdapter(whole_adapter, weights->shard.config, layout);
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<DeviceGroup> devices,
      DeviceGroup::Join(*collective, at::kCPU, /*timeout_seconds=*/60));
  ModelWeights gathered = weights->shard;
  for (int64_t i = 0; i < gathered.config.num_layers; ++i) {
    ASSIGN_OR_RETURN(gathered.layers[static_cast<size_t>(i)],
                     GatherLayer(*weights, i, *devices));
  }
  const ModelWeights share = WeightsOfRank(*weights);
  at::NoGradGuard no_grad;
  NamedTensors results;
  RETURN_IF_ERROR(ForEachJsonLine(
      arguments.input,
      [&](const nlohmann::json& json, int /*line*/) -> absl::Status {
        const auto id = json.at("id").get<std::string>();
        const PackedTokens tokens = PackTokens(
            {json.at("input_ids").get<std::vector<int32_t>>()}, at::kCPU);
        const at::Tensor rows = at::arange(tokens.ids.size(0), at::kLong);
        const at::Tensor parallel = ForwardHidden(share,
                                                  adapted ? &adapter : nullptr,
                                                  tokens,
                                                  rows,
                                                  SumOver(*devices));
        const at::Tensor alone = ForwardHidden(
            gathered, adapted ? &whole_adapter : nullptr, tokens, rows);
        for (const auto& [kind, hidden] :
             {std::pair("parallel", parallel), std::pair("gathered", alone)}) {
          ASSIGN_OR_RETURN(HostTensor logits,
                           FromTorch(ApplyHead(gathered, hidden)));
          results.emplace_back(absl::StrCat(id, ".", kind), std::move(logits));
        }
        return absl::OkStatus();
      }));
  if (arguments.rank != 0) return absl::OkStatus();
  return WriteSafetensors(arguments.output, results, {{"format", "pt"}});
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  dapd::Arguments arguments;
  if (argc != 8 || !absl::SimpleAtoi(argv[5], &arguments.rank) ||
      !absl::SimpleAtoi(argv[6], &arguments.ranks)) {
    std::fputs(
        "usage: dapd_shard_rank MODEL ADAPTER INPUT OUTPUT RANK RANKS "
        "RENDEZVOUS\n",
        stderr);
    return 2;
  }
  arguments.model = argv[1];
  arguments.adapter = argv[2];
  arguments.input = argv[3];
  arguments.output = argv[4];
  arguments.rendezvous = argv[7];
  const absl::Status status =
      dapd::CatchTorch([&] { return dapd::Run(arguments); });
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
