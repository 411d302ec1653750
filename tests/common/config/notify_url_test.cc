#include "common/config/notify_url.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(NotifyUrlTest, HttpAndHttpsAreAccepted) {
  for (const char* url : {"https://example.org",
                          "HTTPS://example.org/a?b=c#d",
                          "http://hook:8080/x",
                          "http://10.0.0.1",
                          "https://[::1]/x",
                          "https://[::1]:9/x"}) {
    EXPECT_EQ(ProblemWithNotifyUrl(url, /*has_secret=*/false), "") << url;
  }
}

TEST(NotifyUrlTest, WhatCannotBePostedToIsRefusedWithoutRepeatingIt) {
  for (const char* url : {"ftp://hidden",
                          "hidden",
                          "https:///hidden",
                          "https://:80/hidden",
                          "https://host:0/hidden",
                          "https://host:x/hidden",
                          "https://host/hid den",
                          "https://host/hidden\n",
                          "https://user:hidden@host/",
                          "http://127.0.0.1\\@hidden.org/"}) {
    const std::string problem = ProblemWithNotifyUrl(url, false);
    EXPECT_NE(problem, "") << url;
    EXPECT_THAT(problem, Not(HasSubstr("hidden"))) << url;
  }
}

TEST(NotifyUrlTest, ASecretTravelsOnlyEncryptedOrWithinTheMachine) {
  EXPECT_EQ(ProblemWithNotifyUrl("https://example.org/x", true), "");
  EXPECT_EQ(ProblemWithNotifyUrl("http://127.0.0.1:99/x", true), "");
  EXPECT_EQ(ProblemWithNotifyUrl("http://[::1]/x", true), "");
  for (const char* url :
       {"http://example.org/x", "http://127.0.0.1.example.org/x"}) {
    EXPECT_THAT(ProblemWithNotifyUrl(url, true), HasSubstr("https://")) << url;
  }
}

TEST(NotifyUrlTest, OnlySchemeHostAndPortAreTold) {
  EXPECT_EQ(NotifyPlace("https://example.org:8/hidden?hidden"),
            "https://example.org:8");
  EXPECT_EQ(NotifyPlace("http://user:hidden@host/x"), "http://host");
  EXPECT_EQ(NotifyPlace("file:///hidden"), "its URL");
}

}  // namespace
}  // namespace dapd
