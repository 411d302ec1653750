#include "common/security/token.h"

#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/certificate_authority.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kViewerToken(32, 'v');
const std::string kAdminToken(512, 'a');

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = TempPath(name);
  WriteSecret(path, bytes);
  return path;
}

std::unique_ptr<TokenTable> Table(const std::string& viewer_file) {
  return TokenTable::Load(
             {{Role::kViewer, "viewer", viewer_file},
              {Role::kAdmin, "admin", Write("admin", kAdminToken + "\n")}})
      .value();
}

TEST(TokenTest, OnlyTheBearerSchemeIsParsed) {
  EXPECT_EQ(ParseBearer("Bearer abc"), "abc");
  EXPECT_EQ(ParseBearer("bEARER  abc "), "abc");
  for (const char* header : {"", "abc", "Basic abc", "Bearer", "Bearerabc"}) {
    EXPECT_EQ(ParseBearer(header), "") << header;
  }
}

TEST(TokenTest, ATokenHasTheRolesOfItsFiles) {
  const auto table = Table(Write("viewer", kViewerToken + "\r\n\n"));
  EXPECT_EQ(table->Find(kViewerToken), RoleSet{Role::kViewer});
  EXPECT_EQ(table->Find(kAdminToken), RoleSet{Role::kAdmin});
}

TEST(TokenTest, AnythingElseHasNoRole) {
  const auto table = Table(Write("viewer", kViewerToken));
  for (const std::string& token : {std::string(),
                                   kViewerToken.substr(1),
                                   kViewerToken + "v",
                                   kViewerToken + "\n",
                                   std::string(32, 'V'),
                                   kAdminToken + "a",
                                   kAdminToken.substr(1),
                                   kViewerToken + std::string(1, '\0')}) {
    EXPECT_TRUE(table->Find(token).empty()) << token.size();
  }
}

TEST(TokenTest, AMalformedFileIsRefusedWithoutItsContents) {
  for (const std::string& bytes : {std::string(),
                                   std::string("\n\n"),
                                   std::string(31, 'c'),
                                   std::string(513, 'c'),
                                   std::string(40, 'c') + " c",
                                   std::string(40, 'c') + "\ncanary",
                                   std::string(40, '\0')}) {
    const absl::Status status =
        TokenTable::Load({{Role::kAdmin, "the.key", Write("bad", bytes)}})
            .status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig) << bytes.size();
    EXPECT_THAT(std::string(status.message()), HasSubstr("the.key"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("ccc")));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("canary")));
  }
}

TEST(TokenTest, TwoTokensOverlapWhileOneIsReplaced) {
  const std::string old_token(32, 'o');
  const std::string new_token(32, 'n');
  const std::string path = Write("viewer", old_token);
  const auto table = Table(path);
  EXPECT_TRUE(table->Find(new_token).empty());
  Write("viewer", old_token + "\n" + new_token);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (table->Find(new_token).empty() && absl::Now() < deadline) {
    EXPECT_FALSE(table->Find(old_token).empty());
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_FALSE(table->Find(new_token).empty());
  Write("viewer", new_token);
  while (!table->Find(old_token).empty() && absl::Now() < deadline) {
    EXPECT_FALSE(table->Find(new_token).empty());
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(table->Find(old_token).empty());
}

// The file is empty while a shell has opened it and not written yet.
TEST(TokenTest, WhatIsNoTokenDoesNotTakeThePlaceOfOne) {
  const std::string path = Write("held", kViewerToken);
  const auto table = Table(path);
  const auto own = PresentedToken::Load("key", path).value();
  ASSERT_FALSE(table->Find(kViewerToken).empty());
  for (const char* bytes : {"", "no token"}) {
    Write("held", bytes);
    absl::SleepFor(absl::Seconds(1.1));
    EXPECT_FALSE(table->Find(kViewerToken).empty()) << bytes;
    EXPECT_TRUE(table->Find("").empty()) << bytes;
    EXPECT_EQ(own->Get(), kViewerToken) << bytes;
  }
  Write("held", kAdminToken);
  absl::SleepFor(absl::Seconds(1.1));
  EXPECT_TRUE(table->Find(kViewerToken).empty());
  EXPECT_EQ(own->Get(), kAdminToken);
}

TEST(TokenTest, AMalformedLineIsNamedByItsNumber) {
  const absl::Status status =
      PresentedToken::Load("key", Write("bad", "\n" + kViewerToken + "\n\nno"))
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("line 4"));
}

TEST(TokenTest, TheFirstTokenOfAFileIsPresented) {
  const auto own =
      PresentedToken::Load(
          "key", Write("own", "\n" + kViewerToken + "\n" + kAdminToken + "\n"))
          .value();
  EXPECT_EQ(own->Get(), kViewerToken);
}

}  // namespace
}  // namespace dapd
