#include "common/objective/view_pass.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(PlanPassTest, APrefixSharesTheLongerViewsSequence) {
  // none_rollout [x, y] is a prefix of the append form of self_rollout [x, y,
  // y].
  const View none{{1, 2, 5, 6, 7}, 2, 3};
  const View self{{1, 2, 5, 6, 7, 5, 6, 7}, 5, 3};
  const View other{{1, 3, 5, 6, 7}, 2, 3};
  const std::vector<const View*> views = {&none, &self, &other};
  const PassPlan plan = PlanPass(views);
  ASSERT_EQ(plan.sequences.size(), 2u);
  EXPECT_EQ(plan.sequence_of_view[0], plan.sequence_of_view[1]);
  EXPECT_NE(plan.sequence_of_view[0], plan.sequence_of_view[2]);
  // The last scored token itself is never read.
  EXPECT_EQ(plan.num_tokens, 7 + 4);
}

TEST(PlanPassTest, EqualViewsAreOneSequence) {
  const View view{{1, 2, 3, 4}, 2, 2};
  const std::vector<const View*> views = {&view, &view};
  EXPECT_EQ(PlanPass(views).sequences.size(), 1u);
}

}  // namespace
}  // namespace dapd
