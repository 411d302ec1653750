#include "services/trainer/rank_identity.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

RunIdentity Identity() {
  return {.base_model_path = "models/here",
          .base_digest = "base",
          .data_digest = "data",
          .settings = {{"trainer.batch_size", "6"}}};
}

TEST(RankIdentityTest, EveryPartThatRanksShareMakesItAnother) {
  RunIdentity base = Identity();
  base.base_digest = "other";
  RunIdentity data = Identity();
  data.data_digest = "other";
  RunIdentity settings = Identity();
  settings.settings["trainer.batch_size"] = "7";
  const std::set<std::string> identities = {
      RankIdentity(Identity(), "0.1.0-1-gabc", false, false),
      RankIdentity(Identity(), "0.1.0-2-gdef", false, false),
      RankIdentity(Identity(), "0.1.0-1-gabc", true, false),
      RankIdentity(Identity(), "0.1.0-1-gabc", false, true),
      RankIdentity(base, "0.1.0-1-gabc", false, false),
      RankIdentity(data, "0.1.0-1-gabc", false, false),
      RankIdentity(settings, "0.1.0-1-gabc", false, false)};
  EXPECT_EQ(identities.size(), 7U) << "two of them are taken for the same job";
}

TEST(RankIdentityTest, WhereTheModelLiesIsEachMachinesOwn) {
  RunIdentity elsewhere = Identity();
  elsewhere.base_model_path = "/mnt/models";
  EXPECT_EQ(RankIdentity(elsewhere, "0.1.0", false, false),
            RankIdentity(Identity(), "0.1.0", false, false));
}

}  // namespace
}  // namespace dapd
