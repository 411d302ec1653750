#include "common/metrics/http_answer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Answer(const std::string& request) {
  static const std::map<std::string, HttpPage> pages = {
      {"/page", {"text/html", [] { return "hello"; }, "default-src 'self'"}}};
  return AnswerHttp(request, pages, {"dapd.example.com"});
}

TEST(HttpAnswerTest, GetReturnsThePageAndHeadOnlyItsHeaders) {
  const std::string got = Answer("GET /page?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(got, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(got, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(got, EndsWith("\r\n\r\nhello"));
  const std::string head = Answer("HEAD /page HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
}

TEST(HttpAnswerTest, EveryAnswerTellsTheBrowserWhatItMayLoad) {
  EXPECT_THAT(Answer("GET /page HTTP/1.1\r\nHost: a\r\n\r\n"),
              HasSubstr("\r\nContent-Security-Policy: default-src 'self'\r\n"));
  for (const char* request : {"GET /other HTTP/1.1\r\nHost: a\r\n\r\n",
                              "POST /page HTTP/1.1\r\nHost: a\r\n\r\n",
                              "nonsense\r\n\r\n"}) {
    EXPECT_THAT(Answer(request), HasSubstr("default-src 'none'")) << request;
    EXPECT_THAT(Answer(request), HasSubstr("nosniff")) << request;
  }
}

TEST(HttpAnswerTest, OtherMethodsPathsAndProtocolsAreRefused) {
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    EXPECT_THAT(
        Answer(std::string(method) + " /page HTTP/1.1\r\nHost: a\r\n\r\n"),
        StartsWith("HTTP/1.1 405"));
  }
  const std::string missing = Answer("GET /../etc HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(missing, HasSubstr("/page\n"));
  for (const char* request : {"nonsense\r\n\r\n",
                              "GET /page HTTP/2\r\nHost: a\r\n\r\n",
                              "GET /page /x HTTP/1.1\r\nHost: a\r\n\r\n",
                              "\r\n\r\n"}) {
    EXPECT_THAT(Answer(request), StartsWith("HTTP/1.1 400")) << request;
  }
}

TEST(HttpAnswerTest, AForeignHostIsRefusedOnEveryPath) {
  for (const char* path : {"/page", "/other"}) {
    const std::string answer = Answer("GET " + std::string(path) +
                                      " HTTP/1.1\r\nHost: evil.com\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 421"));
    EXPECT_THAT(answer, HasSubstr("metrics.allowed_hosts"));
    EXPECT_THAT(answer, Not(HasSubstr("hello")));
  }
  EXPECT_THAT(Answer("GET /page HTTP/1.1\r\nhOST:dapd.example.com:80 \r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST(HttpAnswerTest, ProtectedPagesAskWhoReadsThemAndPublicOnesDoNot) {
  const std::map<std::string, HttpPage> pages = {
      {"/page", {.body = [] { return "hello"; }}},
      {"/open", {.body = [] { return "open"; }, .is_public = true}}};
  const auto ask = [&](const std::string& path, const std::string& headers) {
    return AnswerHttp(
        "GET " + path + " HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n",
        pages,
        {},
        [](absl::string_view authorization) {
          if (authorization == "Bearer viewer") return HttpAccess::kAllowed;
          return authorization == "Bearer worker" ? HttpAccess::kForbidden
                                                  : HttpAccess::kUnknown;
        });
  };
  EXPECT_THAT(ask("/page", "aUTHORIZATION:  Bearer viewer \r\n"),
              EndsWith("hello"));
  EXPECT_THAT(ask("/page", "Authorization: Bearer worker\r\n"),
              StartsWith("HTTP/1.1 403"));
  for (const char* path : {"/page", "/missing"}) {
    for (const char* headers :
         {"", "Authorization:\r\n", "Authorization: Bearer other\r\n"}) {
      const std::string answer = ask(path, headers);
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 401")) << path << headers;
      EXPECT_THAT(answer, HasSubstr("\r\nWWW-Authenticate: Bearer\r\n"));
      EXPECT_THAT(answer, Not(HasSubstr("other")));
    }
  }
  EXPECT_THAT(ask("/open", ""), EndsWith("open"));
  EXPECT_THAT(ask("/page",
                  "Authorization: Bearer viewer\r\n"
                  "Authorization: Bearer viewer\r\n"),
              StartsWith("HTTP/1.1 400"));
}

TEST(HttpAnswerTest, AVersion11RequestHasExactlyOneHost) {
  EXPECT_THAT(Answer("GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Answer("GET /page HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
              StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Answer("GET /page HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace dapd
