#include "common/grader/url_grader.h"

#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "tests/fakes/http_listener.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

bool NeverStops() { return false; }

std::string Answer(const std::string& body) {
  return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ",
                      body.size(),
                      "\r\nConnection: close\r\n\r\n",
                      body);
}

const std::vector<GraderQuestion>& Questions() {
  static const auto& questions = *new std::vector<GraderQuestion>{
      {.id = "1", .answer = "a"}, {.id = "2", .answer = "b"}};
  return questions;
}

std::vector<GraderResult> Grade(HttpListener& server,
                                GraderSection options = {}) {
  options.url = server.url();
  const auto target = LoadGraderTarget(options);
  EXPECT_TRUE(target.ok()) << target.status();
  UrlGrader grader(options, *target, NeverStops);
  return grader.Grade(Questions());
}

nlohmann::json BodyOf(const std::string& request) {
  return nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4));
}

TEST(UrlGraderTest, OneRequestGradesABatchInAnyOrder) {
  HttpListener server([](size_t) {
    return Answer(R"({"grades":[{"id":"2","score":0.25},
                                {"id":"1","correct":true,"feedback":"ok"}]})");
  });
  const auto results = Grade(server);
  EXPECT_EQ(results[0],
            (GraderResult{.correct = true, .score = 1.0, .feedback = "ok"}));
  EXPECT_EQ(results[1], (GraderResult{.correct = false, .score = 0.25}));
  ASSERT_THAT(server.requests(), SizeIs(1));
  const auto body = BodyOf(server.requests()[0]);
  EXPECT_EQ(body.at("answers").at(0).at("answer"), "a");
  EXPECT_EQ(body.at("answers").at(1).at("id"), "2");
}

TEST(UrlGraderTest, ABusyServerIsAskedAgain) {
  HttpListener server([](size_t before) {
    return before == 0 ? HttpAnswer(503)
                       : Answer(R"({"grades":[{"id":"1","correct":true},
                                      {"id":"2","correct":false}]})");
  });
  const auto results = Grade(server, {.retries = 1});
  EXPECT_TRUE(results[0].correct);
  EXPECT_FALSE(results[1].ungraded.has_value());
  EXPECT_THAT(server.requests(), SizeIs(2));
}

TEST(UrlGraderTest, AServerSaysWhenItWantsToBeAskedAgain) {
  const auto seconds_until_graded = [](const std::string& retry_after,
                                       double timeout_seconds) {
    HttpListener server([&](size_t before) {
      return before == 0 ? absl::StrCat("HTTP/1.1 429 Busy\r\nRetry-After: ",
                                        retry_after,
                                        "\r\nContent-Length: 0\r\nConnection: "
                                        "close\r\n\r\n")
                         : Answer(R"({"grades":[{"id":"1","correct":true},
                                        {"id":"2","correct":false}]})");
    });
    const absl::Time began = absl::Now();
    const auto results =
        Grade(server, {.timeout_seconds = timeout_seconds, .retries = 1});
    EXPECT_TRUE(results[0].correct) << results[0].error;
    return absl::ToDoubleSeconds(absl::Now() - began);
  };
  const double asked = seconds_until_graded("2", 30.0);
  EXPECT_GE(asked, 2.0);
  EXPECT_LT(asked, 15.0);
  // The grader's own limit of time bounds it, whatever the form.
  EXPECT_LT(seconds_until_graded("86400", 1.0), 15.0);
  EXPECT_LT(seconds_until_graded("Fri, 31 Dec 2100 23:59:59 GMT", 1.0), 15.0);
}

TEST(UrlGraderTest, RetriesEnd) {
  HttpListener server([](size_t) { return HttpAnswer(429); });
  const auto results = Grade(server, {.retries = 1});
  for (const GraderResult& result : results) {
    EXPECT_EQ(result.ungraded, Ungraded::kUnreachable);
    EXPECT_THAT(result.error, HasSubstr("429"));
  }
  EXPECT_THAT(server.requests(), SizeIs(2));
}

TEST(UrlGraderTest, ARefusalIsFinal) {
  HttpListener server([](size_t) { return HttpAnswer(401); });
  EXPECT_EQ(Grade(server)[0].ungraded, Ungraded::kRefused);
  EXPECT_THAT(server.requests(), SizeIs(1));
}

TEST(UrlGraderTest, AServerThatDoesNotAnswerIsGivenUp) {
  HttpListener server([](size_t) { return ""; });
  EXPECT_EQ(Grade(server, {.timeout_seconds = 0.2, .retries = 0})[1].ungraded,
            Ungraded::kTimeout);
}

TEST(UrlGraderTest, MissingAndBadGradesAreAskedForOnceMoreAlone) {
  HttpListener server([](size_t before) {
    return Answer(before == 0 ? R"({"grades":[{"id":"1","correct":true},
                                              {"id":"2","score":7}, 5]})"
                              : R"({"grades":[]})");
  });
  const auto results = Grade(server);
  EXPECT_TRUE(results[0].correct);
  EXPECT_EQ(results[1].ungraded, Ungraded::kNonsense);
  EXPECT_THAT(results[1].error, HasSubstr("no grade for the answer"));
  ASSERT_THAT(server.requests(), SizeIs(2));
  EXPECT_THAT(BodyOf(server.requests()[1]).at("answers"), SizeIs(1));
}

TEST(UrlGraderTest, NonsenseIsAskedForOnceMore) {
  HttpListener server([](size_t) { return Answer("<html>"); });
  const auto results = Grade(server);
  EXPECT_EQ(results[0].ungraded, Ungraded::kNonsense);
  EXPECT_THAT(results[0].error, HasSubstr("<html>"));
  EXPECT_THAT(server.requests(), SizeIs(2));
}

TEST(UrlGraderTest, ALongResponseIsNotRead) {
  HttpListener server([](size_t) { return Answer(std::string(3000, ' ')); });
  EXPECT_EQ(Grade(server, {.max_output_bytes = 1024})[0].ungraded,
            Ungraded::kTooLong);
}

TEST(UrlGraderTest, TheSecretIsSent) {
  const std::string secret = TempPath("secret");
  ASSERT_TRUE(WriteFileAtomically(secret, "hidden\n").ok());
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  HttpListener server([](size_t) { return Answer(R"({"grades":[]})"); });
  Grade(server, {.secret_file = secret});
  EXPECT_THAT(server.requests()[0],
              HasSubstr("Authorization: Bearer hidden\r\n"));
}

TEST(UrlGraderTest, FilesAreCheckedAtTheStart) {
  const std::string open = TempPath("open");
  ASSERT_TRUE(WriteFileAtomically(open, "hidden\n").ok());
  ASSERT_EQ(::chmod(open.c_str(), 0644), 0);
  for (const GraderSection& options :
       {GraderSection{.url = "https://a", .secret_file = open},
        GraderSection{.url = "https://a", .secret_file = open + "-not"},
        GraderSection{.url = "https://a", .ca_file = open}}) {
    const auto target = LoadGraderTarget(options);
    EXPECT_EQ(ExitCodeOf(target.status()), ExitCode::kConfig);
    EXPECT_THAT(target.status().message(), HasSubstr("grader."));
    EXPECT_THAT(target.status().message(), ::testing::Not(HasSubstr("hidden")));
  }
}

}  // namespace
}  // namespace dapd
