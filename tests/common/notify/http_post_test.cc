#include "common/notify/http_post.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/http_listener.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLongTimeout = absl::Seconds(20);

bool NeverGivesUp() { return false; }

PostLimits Limits(bool keeps_answer, size_t max_answer_bytes = 100) {
  return {.connect_timeout = kLongTimeout,
          .timeout = kLongTimeout,
          .max_answer_bytes = max_answer_bytes,
          .keeps_answer = keeps_answer};
}

std::string AnswerWith(const std::string& body, size_t length) {
  return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ",
                      length,
                      "\r\nConnection: close\r\n\r\n",
                      body);
}

TEST(HttpPostTest, ReturnsTheBodyThatIsWanted) {
  HttpListener server([](size_t) { return AnswerWith("a body", 6); });
  EXPECT_EQ(
      PostOnce({.url = server.url()}, "{}", Limits(true), NeverGivesUp).value(),
      "a body");
  EXPECT_EQ(PostOnce({.url = server.url()}, "{}", Limits(false), NeverGivesUp)
                .value(),
            "");
}

TEST(HttpPostTest, ABodyThatIsTooLongIsRefusedOnlyIfItIsWanted) {
  HttpListener server(
      [](size_t) { return AnswerWith(std::string(101, 'x'), 101); });
  const auto wanted =
      PostOnce({.url = server.url()}, "{}", Limits(true), NeverGivesUp);
  EXPECT_TRUE(absl::IsResourceExhausted(wanted.status())) << wanted.status();
  EXPECT_THAT(wanted.status().message(),
              AllOf(HasSubstr("more than 100 bytes"),
                    HasSubstr("http://127.0.0.1:"),
                    Not(HasSubstr("xxx"))));
  EXPECT_TRUE(
      PostOnce({.url = server.url()}, "{}", Limits(false), NeverGivesUp).ok());
}

TEST(HttpPostTest, ABodyThatEndsTooSoonCanBeAskedForAgain) {
  HttpListener server([](size_t) { return AnswerWith("half", 8); });
  const auto body =
      PostOnce({.url = server.url()}, "{}", Limits(true), NeverGivesUp);
  EXPECT_TRUE(absl::IsUnavailable(body.status())) << body.status();
}

TEST(HttpPostTest, StatusesAreErrors) {
  for (const auto& [status, code] :
       {std::pair(429, absl::StatusCode::kUnavailable),
        std::pair(503, absl::StatusCode::kUnavailable),
        std::pair(404, absl::StatusCode::kInvalidArgument),
        std::pair(302, absl::StatusCode::kInvalidArgument)}) {
    HttpListener server(
        [status = status](size_t) { return HttpAnswer(status); });
    EXPECT_EQ(PostOnce({.url = server.url()}, "{}", Limits(true), NeverGivesUp)
                  .status()
                  .code(),
              code)
        << status;
  }
}

}  // namespace
}  // namespace dapd
