#include "common/model/spec/memory_plan.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

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

// What a process holds for terms that read these weights.
std::set<std::string> Items(WeightSet weights, RoleMemory MemoryPlan::*role) {
  Config config;
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
    EXPECT_FALSE(base.contains(WeightSetName(set)));
    auto with_set = Items(set, &MemoryPlan::teacher);
    EXPECT_EQ(with_set.erase(WeightSetName(set)), 1U) << WeightSetName(set);
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
  // With the same bits each time packs do not depend on memory.
  config.model.deterministic = true;
  EXPECT_DOUBLE_EQ(PlanMemory(config, SmallModel()).trainer.Least(),
                   trainer.Least() + longer_packs);
  config.trainer.activation_memory_mib = 1;
  EXPECT_DOUBLE_EQ(PlanMemory(config, SmallModel()).trainer.Least(),
                   trainer.Least() + longer_packs + (1 << 20));
}

}  // namespace
}  // namespace dapd
