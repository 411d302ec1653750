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
std::set<std::string> Items(const char* weights, RoleMemory MemoryPlan::*role) {
  Config config;
  config.objective.terms = {{.name = "a", .teacher_weights = weights}};
  std::set<std::string> items;
  for (const MemoryItem& item :
       (PlanMemory(config, SmallModel()).*role).items) {
    items.insert(item.what);
  }
  return items;
}

TEST(MemoryPlanTest, ATeacherHoldsTheAdaptersThatTermsRead) {
  const auto base = Items("base", &MemoryPlan::teacher);
  for (const char* set : {"snapshot", "ema", "live"}) {
    EXPECT_FALSE(base.contains(set));
    auto with_set = Items(set, &MemoryPlan::teacher);
    EXPECT_EQ(with_set.erase(set), 1U) << set;
    EXPECT_EQ(with_set, base);
  }
}

TEST(MemoryPlanTest, TheTrainerKeepsAMovingAverageThatIsRead) {
  EXPECT_FALSE(Items("live", &MemoryPlan::trainer).contains("moving average"));
  EXPECT_TRUE(Items("ema", &MemoryPlan::trainer).contains("moving average"));
}

}  // namespace
}  // namespace dapd
