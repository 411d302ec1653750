#include "common/security/role.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(RoleTest, EveryRoleHasANameThatLeadsBackToIt) {
  for (int i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    EXPECT_EQ(ParseRole(RoleName(role)), role);
    EXPECT_TRUE(RoleSet::All().Contains(role));
    EXPECT_FALSE(RoleSet().Contains(role));
  }
  EXPECT_EQ(ParseRole("root"), std::nullopt);
  EXPECT_EQ(ParseRole(""), std::nullopt);
}

TEST(RoleTest, SetsJoinAndIntersect) {
  RoleSet roles{Role::kViewer};
  EXPECT_FALSE(roles.Intersects({Role::kTrainer, Role::kAdmin}));
  roles.Add({Role::kTrainer});
  EXPECT_TRUE(roles.Intersects({Role::kTrainer, Role::kAdmin}));
  EXPECT_EQ(roles.ToString(), "viewer, trainer");
  EXPECT_EQ(RoleSet().ToString(), "no role");
}

TEST(RoleTest, OnlyExactUrisOfThisSystemGrantARole) {
  EXPECT_EQ(RolesOfUris({"spiffe://dapd/rollout"}), RoleSet{Role::kRollout});
  EXPECT_EQ(RolesOfUris({"https://example.org/admin",
                         "spiffe://dapd/teacher",
                         "spiffe://dapd/trainer"}),
            (RoleSet{Role::kTeacher, Role::kTrainer}));
  for (const char* uri : {"",
                          "spiffe://dapd/",
                          "spiffe://dapd/admin/",
                          "spiffe://dapd/admin/x",
                          "spiffe://dapd//admin",
                          "spiffe://dapd/Admin",
                          "spiffe://DAPD/admin",
                          "SPIFFE://dapd/admin",
                          "spiffe://other/admin",
                          "spiffe://dapd.example.org/admin",
                          "spiffe://dapd/admin?x",
                          " spiffe://dapd/admin",
                          "http://spiffe://dapd/admin"}) {
    EXPECT_TRUE(RolesOfUris({uri}).empty()) << uri;
  }
  EXPECT_TRUE(RolesOfUris({std::string("spiffe://dapd/admin\0x", 21)}).empty());
}

}  // namespace
}  // namespace dapd
