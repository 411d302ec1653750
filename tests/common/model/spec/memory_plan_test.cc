#include "common/model/spec/memory_plan.h"

#include <cstdint>
#include <iostream>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/kernels/flash_attention_3_memory.h"
#include "common/model/spec/gpu_shares.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/spec/step_cost.h"
#include "tests/fakes/model_shapes.h"

namespace dapd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ModelConfig SmallModel() {
  ModelConfig model;
  model.vocab_size = 1000;
  model.hidden_size = 64;
  model.intermediate_size = 128;
  model.num_layers = 2;
  model.num_heads = 2;
  model.num_kv_heads = 1;
  model.head_dim = 32;
  return model;
}

// Returns the items of a process for terms that read these weights.
std::set<std::string> Items(WeightSet weights, RoleMemory MemoryPlan::*role) {
  Config config;
  config.model.device = DeviceChoice::kCpu;
  config.objective.terms = {{.target = TeacherPass{.weights = weights}}};
  std::set<std::string> items;
  const MemoryPlan plan = PlanMemory(config, SmallModel());
  for (const MemoryItem& item : (plan.*role).items) items.insert(item.what);
  return items;
}

TEST(MemoryPlanTest, ATeacherHoldsTheAdaptersThatTermsRead) {
  const auto base = Items(WeightSet::kBase, &MemoryPlan::teacher);
  for (const WeightSet set :
       {WeightSet::kSnapshot, WeightSet::kEma, WeightSet::kLive}) {
    EXPECT_FALSE(base.contains(NameOf(set)));
    auto with_set = Items(set, &MemoryPlan::teacher);
    EXPECT_EQ(with_set.erase(NameOf(set)), 1U) << NameOf(set);
    EXPECT_EQ(with_set, base);
  }
}

TEST(MemoryPlanTest, TheTrainerKeepsAMovingAverageThatIsRead) {
  EXPECT_FALSE(
      Items(WeightSet::kLive, &MemoryPlan::trainer).contains("moving average"));
  EXPECT_TRUE(
      Items(WeightSet::kEma, &MemoryPlan::trainer).contains("moving average"));
}

TEST(MemoryPlanTest, TheLeastOfATrainerIsALongestSampleWithoutActivations) {
  Config config;
  config.trainer.pack_tokens = 100'000;
  const RoleMemory trainer = PlanMemory(config, SmallModel()).trainer;
  double longer_packs = 0;
  for (const MemoryItem& item : trainer.items) {
    if (item.what == "kept activations" || item.what == "trained ahead") {
      EXPECT_EQ(item.least, 0.0) << item.what;
    }
    if (item.what == "inputs of all layers" || item.what == "a layer") {
      longer_packs += item.bytes - item.least.value();
    }
  }
  EXPECT_GT(longer_packs, 0);
  // If bits must be reproducible, packs do not depend on memory.
  config.model.deterministic = true;
  EXPECT_DOUBLE_EQ(PlanMemory(config, SmallModel()).trainer.Least(),
                   trainer.Least() + longer_packs);
  config.trainer.activation_memory_mib = 1;
  EXPECT_DOUBLE_EQ(PlanMemory(config, SmallModel()).trainer.Least(),
                   trainer.Least() + longer_packs + (1 << 20));
}

// The start and `fit` ask for the memory by which the trainer then plans.
TEST(MemoryPlanTest, OnAGpuTheLeastIsWhatTheTrainersOwnRuleAsksFor) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  const ModelConfig model = FourBillion();
  for (const int64_t answer : {1024, 38'912}) {
    for (const auto& [ranks, splits] :
         {std::pair{1, false}, {4, false}, {4, true}}) {
      for (const int64_t processes : {1, 3}) {
        config.rollout.max_new_tokens = answer;
        config.rollout.max_staleness = ranks > 1 ? 1 : 0;
        config.trainer.pack_tokens = 200'000;
        config.trainer.ranks = ranks;
        config.trainer.shard_base = splits;
        config.run.gpu_processes = processes;
        const RoleMemory trainer = PlanMemory(config, model).trainer;
        const double total = trainer.Least() / (1 - trainer.holes) *
                             static_cast<double>(processes);
        const auto fits = [&](double factor) {
          const auto bytes = static_cast<int64_t>(total * factor);
          return PlanTrainerLimits(
                     config, model, EmptyGpu(config, model, bytes))
              .ok();
        };
        EXPECT_TRUE(fits(1.0001)) << answer << ", " << ranks << " ranks";
        EXPECT_FALSE(fits(0.9999)) << answer << ", " << ranks << " ranks";
      }
    }
  }
}

MemoryItem ItemOf(const RoleMemory& role, const std::string& what) {
  for (const MemoryItem& item : role.items) {
    if (item.what == what) return item;
  }
  ADD_FAILURE() << "nothing is called " << what;
  return {};
}

TEST(MemoryPlanTest, AWorkerOnAGpuHoldsItsDecoderAndAPassOverPrompts) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  ModelConfig model = FourBillion();
  model.max_positions = 40'960;
  const auto worker = [&] { return PlanMemory(config, model).rollout; };
  // For 32 rows the decoder holds attention's splits of 32 heads, logits, the
  // product's workspace, and cosines and sines.
  const double large = 32.0 * (32 * 320 * (2 + 128) + 151'936) * 4 +
                       (32 << 20) + 2.0 * 40'960 * 128 * 2;
  const MemoryItem decoder = ItemOf(worker(), "decoder");
  EXPECT_GT(decoder.bytes, large);
  EXPECT_LT(decoder.bytes, large + 5e6);
  EXPECT_FALSE(decoder.least.has_value());
  // For 2,560 rows a pass holds keys and values of all layers, and in a layer
  // the two halves of the MLP and their product with 64 columns behind it.
  const double row = 36 * 2 * 8 * 128 + 3 * 9728 + 64;
  const MemoryItem prompts = ItemOf(worker(), "prompts or the next adapter");
  EXPECT_GT(prompts.bytes, 2560 * row * 2);
  EXPECT_LT(prompts.bytes, 2560 * row * 2 * 1.25);
  // Each of the stacked products has 64 columns behind it.
  EXPECT_DOUBLE_EQ(ItemOf(worker(), "adapter in the projections").bytes,
                   36 * 64 * 2 *
                       (3.0 * (2560 + 6144) + (4096 + 2560) +
                        2.0 * (2560 + 19'456) + (9728 + 2560)));
  // A worker with little memory takes fewer prompts at once; ranks cannot agree
  // on that.
  EXPECT_LT(prompts.least.value(), prompts.bytes);
  config.rollout.tensor_parallel = 4;
  EXPECT_FALSE(ItemOf(worker(), "prompts or the next adapter").least);
  config.rollout.tensor_parallel = 1;
  // A float32 model's adapter is merged, into separate projections if there is
  // room.
  config.model.precision = Precision::kFloat32;
  const MemoryItem merged = ItemOf(worker(), "projections with the adapter");
  EXPECT_DOUBLE_EQ(merged.bytes, 4 * ProjectedParameters(model));
  EXPECT_EQ(merged.least, 0.0);
  config.model.precision = Precision::kBfloat16;
  // A GPU decodes no more sequences than this at once.
  config.rollout.slots = 128;
  const double total = worker().Total();
  const double least = worker().Least();
  config.rollout.slots = 1000;
  EXPECT_DOUBLE_EQ(worker().Total(), total);
  config.rollout.slots = 8;
  EXPECT_LT(worker().Least(), least);
  // A CPU's worker has no such items.
  config.model.device = DeviceChoice::kCpu;
  for (const MemoryItem& item : worker().items) {
    EXPECT_NE(item.what, "decoder");
  }
}

TEST(MemoryPlanTest, KeysAndValuesInFloat8TakeHalfOfAGpusMemoryForThem) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  const ModelConfig model = FourBillion();
  const auto caches = [&] {
    return ItemOf(PlanMemory(config, model).rollout, "key-value caches").bytes;
  };
  const double as_the_model = caches();
  config.rollout.kv_precision = KvPrecision::kFloat8;
  // 128 numbers take one byte each instead of two, and a scale takes two.
  EXPECT_DOUBLE_EQ(caches(), as_the_model * (128 + 2) / (128 * 2));
  // A CPU's caches have room for the numbers before they are rounded.
  config.model.device = DeviceChoice::kCpu;
  const double on_a_cpu = caches();
  config.rollout.kv_precision = KvPrecision::kModel;
  EXPECT_DOUBLE_EQ(caches(), on_a_cpu);
}

TEST(MemoryPlanTest, AGpuWithoutRoomForAWorkersDecoderIsRefused) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  ModelConfig model = FourBillion();
  model.max_positions = 40'960;
  const MemoryPlan plan = PlanMemory(config, model);
  const double decoder = ItemOf(plan.rollout, "decoder").bytes;
  const auto check = [&](double free) {
    const Gpu gpu{.name = "NVIDIA L4",
                  .uuid = "GPU-1a",
                  .total_bytes = int64_t{24} << 30,
                  .free_bytes = static_cast<int64_t>(free)};
    return CheckShares(
        {{"rollout-0", &MemoryPlan::rollout, {"0"}}}, plan, {"0"}, {gpu});
  };
  EXPECT_TRUE(check(plan.rollout.Least() + 1).ok());
  const std::string refused(
      check(plan.rollout.Least() - decoder / 2).message());
  // The message says what is needed, what the GPU has, and what is free.
  EXPECT_THAT(refused,
              AllOf(HasSubstr("at least 9.7 GiB (rollout-0 9.7)"),
                    HasSubstr("has 24.0 GiB, of which 9.6 GiB are free")));
}

TEST(MemoryPlanTest, RanksOfAWorkerHoldWhatTheyAddUpOfEachOther) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  config.rollout.slots = 48;
  const ModelConfig model = FourBillion();
  const auto sums = [&] {
    for (const MemoryItem& item : PlanMemory(config, model).rollout.items) {
      if (item.what == "sums over the ranks") return item;
    }
    return MemoryItem{};
  };
  EXPECT_EQ(sums().bytes, 0.0);
  // Four ranks have parts of 64 rows. For five products and 512 rows of prompts
  // a rank holds its own part and the others' in float32, and two sums in
  // bfloat16.
  config.rollout.tensor_parallel = 4;
  EXPECT_DOUBLE_EQ(sums().bytes,
                   2560.0 * (4 * 64 * 4 + 5 * 512 * (4 + 4 + 2 * 2)));
  EXPECT_FALSE(sums().least.has_value());
  // A GPU decodes no more sequences than this at once.
  config.rollout.slots = 1000;
  EXPECT_DOUBLE_EQ(sums().bytes,
                   2560.0 * (4 * 128 * 4 + 5 * 512 * (4 + 4 + 2 * 2)));
  config.model.precision = Precision::kFloat32;
  EXPECT_DOUBLE_EQ(sums().bytes,
                   2560.0 * (4 * 128 * 4 + 5 * 512 * (4 + 4 + 2 * 4)));
  // A CPU's ranks sum in place.
  config.model.device = DeviceChoice::kCpu;
  EXPECT_EQ(sums().bytes, 0.0);
}

TEST(MemoryPlanTest, ATeacherOnAGpuHoldsTheViewsOfSixRequests) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  config.teacher.prefix_memory_mib = 0;
  config.objective.terms = {
      {.target = TeacherPass{.view = ViewName::kSelfRollout}}};
  const ModelConfig model = FourBillion();
  const auto views = [&] {
    for (const MemoryItem& item : PlanMemory(config, model).teacher.items) {
      if (item.what.starts_with("views under way")) return item;
    }
    return MemoryItem{};
  };
  // A token has keys and values of 8 heads in 36 layers, and a last hidden
  // state.
  const double token = 2 * (36.0 * 2 * 8 * 128 + 2560);
  const double tokens = LongestSamples(config).at("self_rollout").tokens;
  EXPECT_DOUBLE_EQ(views().bytes, 6 * tokens * token);
  EXPECT_DOUBLE_EQ(views().least.value(), tokens * token);
  // Views that fit into the prefix cache are counted as its memory.
  config.teacher.prefix_memory_mib = 1024;
  EXPECT_DOUBLE_EQ(views().bytes, 6 * tokens * token - (1 << 30));
  config.teacher.prefix_memory_mib = 1 << 20;
  EXPECT_EQ(views().bytes, 0.0);
  // A base and a snapshot that still is the base share passes; other weights do
  // not.
  config.teacher.prefix_memory_mib = 0;
  config.objective.terms.push_back(
      {.target = TeacherPass{.weights = WeightSet::kSnapshot,
                             .view = ViewName::kSelfReference}});
  EXPECT_GT(views().least.value(), tokens * token);
  EXPECT_DOUBLE_EQ(
      ItemOf(PlanMemory(config, model).teacher, "keys and values of a pass")
          .bytes,
      4096 * token);
}

// A teacher's adapter has columns in either precision, while a worker merges a
// float32 model's adapter.
TEST(MemoryPlanTest, ATeachersAdapterHasColumnsOnAGpu) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  const ModelConfig model = FourBillion();
  constexpr char kColumns[] = "adapter in the projections";
  const double bytes =
      ItemOf(PlanMemory(config, model).teacher, kColumns).bytes;
  EXPECT_EQ(bytes, ItemOf(PlanMemory(config, model).rollout, kColumns).bytes);
  config.model.precision = Precision::kFloat32;
  EXPECT_EQ(ItemOf(PlanMemory(config, model).teacher, kColumns).bytes,
            2 * bytes);
  config.objective.terms = {{.target = TeacherPass{}}};  // the base alone
  for (const MemoryItem& item : PlanMemory(config, model).teacher.items) {
    EXPECT_NE(item.what, kColumns);
  }
}

// The ends of all views may share a pass, which attends to each whole view.
TEST(MemoryPlanTest, ATeachersPassBringsThePastsOfAllViewsTogether) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  config.objective.max_reference_tokens = 7000;
  config.objective.terms = {
      {.target = TeacherPass{.view = ViewName::kSelfReference}},
      {.target = TeacherPass{.view = ViewName::kNoneReference}}};
  const ModelConfig model = FourBillion();
  const MemoryItem layer = ItemOf(PlanMemory(config, model).teacher, "a layer");
  // The past has keys and values of 8 heads in one layer.
  const double attended = (330.0 + 2 * 7000 + 200 + 7000) * 2 * 8 * 128 * 2;
  const double work = LayerWorkspace(config, model, 4096);
  EXPECT_DOUBLE_EQ(layer.bytes, work + 6 * attended);
  EXPECT_DOUBLE_EQ(layer.least.value(), work + attended) << "one request";
}

ModelConfig Shape(int64_t hidden,
                  int64_t intermediate,
                  int64_t heads,
                  int64_t kv_heads,
                  int64_t head_dim) {
  ModelConfig model = FourBillion();
  model.hidden_size = hidden;
  model.intermediate_size = intermediate;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.head_dim = head_dim;
  return model;
}

// A layer's workspace is as much as its MLP takes. The backward pass of
// attention, which takes its sums at another time, must fit into it.
TEST(MemoryPlanTest, TheSumsOfAttentionsGradientsFitIntoALayersWorkspace) {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  constexpr int64_t kTokens = 16384;
  for (const ModelConfig& model :
       {FourBillion(),
        Shape(1024, 3072, 16, 8, 128),       // Qwen3-0.6B
        Shape(5120, 25600, 64, 8, 128),      // Qwen3-32B
        Shape(576, 1536, 9, 3, 64),          // SmolLM2-135M
        Shape(3584, 14336, 16, 8, 256),      // Gemma's width
        Shape(4096, 11008, 32, 32, 128)}) {  // heads that share nothing
    const auto numbers = [](int64_t count) {
      return static_cast<double>(kTokens * count * 2);
    };
    const int64_t q = model.num_heads * model.head_dim;
    const int64_t k = model.num_kv_heads * model.head_dim;
    const double sums =
        static_cast<double>(BackwardMemoryOf({.sequences = 24,
                                              .q_rows = kTokens,
                                              .k_rows = kTokens,
                                              .longest_q = kTokens,
                                              .longest_k = kTokens,
                                              .heads = model.num_heads,
                                              .kv_heads = model.num_kv_heads,
                                              .head_dim = model.head_dim},
                                             /*is_deterministic=*/false)
                                .bytes);
    // Beside them are q, k, v and their gradients, the result and its gradient,
    // and the gradient of the layer's output.
    const double needed =
        sums + numbers(2 * (q + 2 * k) + 2 * q) + numbers(model.hidden_size);
    const double planned =
        LayerWorkspace(config, model, static_cast<double>(kTokens));
    std::cout << model.hidden_size << ": " << needed / planned << "\n";
    EXPECT_LE(needed, planned) << model.hidden_size;
  }
}

TEST(MemoryPlanTest, LogitsAreOfThePayloadsThatSendThem) {
  Config config;
  config.objective.terms = {
      {.target = TeacherPass{.view = ViewName::kSelfRollout}}};
  const ModelConfig model = FourBillion();
  const auto bytes = [&](DeviceChoice device, Payload payload) {
    config.model.device = device;
    config.teacher.payload = payload;
    return ItemOf(PlanMemory(config, model).teacher, "logits").bytes;
  };
  const double row = 4.0 * static_cast<double>(model.vocab_size);
  EXPECT_EQ(bytes(DeviceChoice::kCuda, Payload::kLogits), 512 * row);
  EXPECT_EQ(ItemOf(PlanMemory(config, model).teacher, "scores").bytes,
            6 * 3 * 2048 * row);
  // Logits exist as computed, divided by the temperature, and normalised.
  EXPECT_EQ(bytes(DeviceChoice::kCuda, Payload::kTopK), 3 * 512 * row);
  EXPECT_EQ(bytes(DeviceChoice::kCpu, Payload::kTopK), 3 * 64 * row);
  config.teacher.payload = Payload::kHiddenStates;
  for (const MemoryItem& item : PlanMemory(config, model).teacher.items) {
    EXPECT_NE(item.what, "logits");
  }
  EXPECT_EQ(
      ItemOf(PlanMemory(config, model).teacher, "keys and values of a pass")
          .bytes,
      512 * 2 * (36.0 * 2 * 8 * 128 + 2560));
}

TEST(MemoryPlanTest, ATeacherOnACpuHoldsThePassAndTheRequestUnderWay) {
  Config config;
  config.model.device = DeviceChoice::kCpu;
  config.model.precision = Precision::kBfloat16;
  config.objective.terms = {
      {.target = TeacherPass{.view = ViewName::kSelfRollout}}};
  const auto bytes = [&](const char* what) {
    return ItemOf(PlanMemory(config, FourBillion()).teacher, what).bytes;
  };
  // A token has keys and values of 8 heads in 36 layers, and a last hidden
  // state.
  const double token = 2 * (36.0 * 2 * 8 * 128 + 2560);
  EXPECT_DOUBLE_EQ(bytes("keys and values of a pass"), 512 * token);
  config.teacher.chunk_tokens = 1024;
  EXPECT_DOUBLE_EQ(bytes("keys and values of a pass"), 1024 * token);
  // Views that fit into the prefix cache are counted as its memory.
  constexpr char kViews[] = "views under way, beside the prefixes";
  const double tokens = LongestSamples(config).at("self_rollout").tokens;
  config.teacher.prefix_memory_mib = 100;
  EXPECT_DOUBLE_EQ(bytes(kViews), tokens * token - 100 * (1 << 20));
  config.teacher.prefix_memory_mib = 2048;
  EXPECT_EQ(bytes(kViews), 0.0);
}

// Returns a configuration that reads the teacher "big" alone, and this teacher.
Config ReadsBig(FurtherTeachers* teachers) {
  Config config;
  config.model.device = DeviceChoice::kCpu;
  config.model.precision = Precision::kFloat32;
  config.objective.terms = {{.target = TeacherPass{.teacher = "big"}}};
  config.teachers = {{.name = "big", .workers = 2}};
  FurtherTeacher big{.settings = config.teachers[0], .model = SmallModel()};
  big.model.vocab_size = 2000;
  big.model.hidden_size = 128;
  *teachers = {big};
  return config;
}

TEST(MemoryPlanTest, TheTrainerHoldsTheHeadsOfFurtherTeachers) {
  FurtherTeachers teachers;
  const Config config = ReadsBig(&teachers);
  const MemoryPlan alone = PlanMemory(config, SmallModel());
  const MemoryPlan plan = PlanMemory(config, SmallModel(), teachers);
  const double tokens =
      32.0 * 3 *
      static_cast<double>(config.rollout.max_new_tokens +
                          config.objective.max_reference_tokens);
  EXPECT_EQ(ItemOf(plan.trainer, "heads of further teachers").bytes,
            4.0 * 2000 * 128);
  // The step's scores have the teacher's width.
  EXPECT_EQ(ItemOf(alone.trainer, "scores of a step").bytes, tokens * 64 * 4);
  EXPECT_EQ(ItemOf(plan.trainer, "scores of a step").bytes, tokens * 128 * 4);
  EXPECT_EQ(ItemOf(plan.teachers.at("big"), "base").bytes,
            4.0 * static_cast<double>(teachers[0].model.NumParameters()));
  EXPECT_TRUE(alone.teachers.empty());
  const auto gpu = [&](const FurtherTeachers& with) {
    return EmptyGpu(config, SmallModel(), int64_t{1} << 33, with).free;
  };
  EXPECT_EQ(gpu({}) - gpu(teachers), 4 * 2000 * 128);
}

// The rank and the modules are the teacher's, not the run's (lora.rank).
TEST(MemoryPlanTest, TheAdapterOfAFurtherTeacherHasItsOwnRank) {
  FurtherTeachers teachers;
  Config config = ReadsBig(&teachers);
  config.lora.rank = 4;
  const RoleMemory without = PlanTeacherMemory(config, teachers[0]);
  teachers[0].lora = LoraConfig{.rank = 24, .targets = {"q_proj", "down_proj"}};
  const ModelConfig& model = teachers[0].model;
  const double numbers =
      24.0 * static_cast<double>(model.num_layers *
                                 (model.hidden_size +
                                  model.num_heads * model.head_dim +
                                  model.intermediate_size + model.hidden_size));
  EXPECT_EQ(static_cast<double>(teachers[0].NumAdapterParameters()), numbers);
  const MemoryPlan plan = PlanMemory(config, SmallModel(), teachers);
  EXPECT_EQ(ItemOf(plan.teachers.at("big"), "adapter").bytes, 4 * numbers);
  EXPECT_NEAR(
      plan.teachers.at("big").Total() - without.Total(), 4 * numbers, 1.0);
  const double tokens = LongestSamples(config).at("none_rollout").tokens;
  const auto flops = [&] {
    return CountStepWork(
               config, SmallModel(), LongestSamples(config), true, teachers)
        .further_flops;
  };
  const double with = flops();
  teachers[0].lora.reset();
  EXPECT_EQ(with - flops(), 32 * tokens * 2 * numbers);
}

TEST(MemoryPlanTest, OnAGpuAFurtherTeachersAdapterHasColumns) {
  FurtherTeachers teachers;
  Config config = ReadsBig(&teachers);
  config.model.device = DeviceChoice::kCuda;
  const double without = PlanTeacherMemory(config, teachers[0]).Total();
  teachers[0].lora = LoraConfig{.rank = 24};
  const RoleMemory small = PlanTeacherMemory(config, teachers[0]);
  teachers[0].lora->rank = 200;
  const RoleMemory large = PlanTeacherMemory(config, teachers[0]);
  constexpr char kColumns[] = "adapter in the projections";
  EXPECT_GT(ItemOf(small, kColumns).bytes, 0.0);
  EXPECT_GT(ItemOf(large, kColumns).bytes, ItemOf(small, kColumns).bytes);
  EXPECT_NEAR(small.Total() - without,
              ItemOf(small, "adapter").bytes + ItemOf(small, kColumns).bytes,
              1.0);
}

TEST(MemoryPlanTest, AFurtherTeachersWorkHasItsOwnSize) {
  FurtherTeachers teachers;
  const Config config = ReadsBig(&teachers);
  const ModelConfig& big = teachers[0].model;
  const SampleLengths lengths = LongestSamples(config);
  const StepWork work =
      CountStepWork(config, SmallModel(), lengths, true, teachers);
  const ViewLengths& view = lengths.at("none_rollout");
  EXPECT_EQ(work.teacher_flops, 0);
  EXPECT_EQ(work.further_flops,
            32 * (view.tokens * 2 * ProjectedParameters(big) +
                  view.squares * 2 * 2 * 2 * 32));
  EXPECT_EQ(work.further_flops_of_worker, work.further_flops / 2);
  EXPECT_EQ(work.payload_bytes, 32 * view.scored * 128 * 4);
  const StepWork without =
      CountStepWork(config, SmallModel(), lengths, true, {});
  EXPECT_EQ(work.trainer_flops - without.trainer_flops,
            32 * view.scored * 2 * 2000 * 128);
}

}  // namespace
}  // namespace dapd
