#include "common/notify/webhook.h"

#include <sys/stat.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/certificate_authority.h"
#include "tests/fakes/http_listener.h"
#include "tests/fakes/machine_clock.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

bool Never() { return false; }

std::string SecretFile(const std::string& bytes,
                       const std::string& name = "secret") {
  const std::string path = TempPath(name);
  EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
  EXPECT_EQ(::chmod(path.c_str(), 0600), 0);
  return path;
}

TEST(PostJsonTest, TheDocumentArrivesWithTheHeader) {
  HttpListener server([](size_t) { return HttpAnswer(204); });
  EXPECT_TRUE(PostJson({.url = server.url() + "/hook?run=1",
                        .header = "X-Token: hidden"},
                       "{\"run\": \"a\"}",
                       Never)
                  .ok());
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_THAT(requests[0], StartsWith("POST /hook?run=1 HTTP/1.1\r\n"));
  EXPECT_THAT(requests[0], HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(requests[0], HasSubstr("X-Token: hidden\r\n"));
  EXPECT_THAT(requests[0], EndsWith("\r\n\r\n{\"run\": \"a\"}"));
}

TEST(PostJsonTest, AServerThatIsBusyIsAskedAgain) {
  HttpListener server([](size_t before) {
    return HttpAnswer(before == 0 ? 503 : before == 1 ? 429 : 200);
  });
  EXPECT_TRUE(PostJson({.url = server.url()}, "{}", Never).ok());
  EXPECT_THAT(server.requests(), SizeIs(3));
}

TEST(PostJsonTest, ARefusalIsFinalAndTellsNothingOfThePath) {
  for (const int status : {302, 401, 404}) {
    HttpListener server([&](size_t) { return HttpAnswer(status); });
    const absl::Status said = PostJson(
        {.url = server.url() + "/hidden", .header = "A: hidden"}, "{}", Never);
    EXPECT_TRUE(absl::IsInvalidArgument(said)) << said;
    EXPECT_THAT(std::string(said.message()), HasSubstr(absl::StrCat(status)));
    EXPECT_THAT(std::string(said.message()), HasSubstr(server.url()));
    EXPECT_THAT(std::string(said.message()), Not(HasSubstr("hidden")));
    EXPECT_THAT(server.requests(), SizeIs(1)) << "nothing is followed";
  }
}

TEST(PostJsonTest, AServerThatHangsHoldsNobodyBeyondTheTimeOut) {
  HttpListener server([](size_t) { return ""; });
  const absl::Time start = absl::Now();
  const absl::Status said = PostJson(
      {.url = server.url(), .timeout = absl::Seconds(1.5)}, "{}", Never);
  EXPECT_TRUE(absl::IsDeadlineExceeded(said)) << said;
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST(PostJsonTest, AServerThatIsSlowIsWaitedForAndGetsItOnce) {
  HttpListener server([](size_t) {
    absl::SleepFor(absl::Seconds(1));
    return HttpAnswer(200);
  });
  const absl::Status said =
      PostJson({.url = server.url(), .timeout = absl::Seconds(2)}, "{}", Never);
  EXPECT_TRUE(said.ok()) << said;
  EXPECT_THAT(server.requests(), SizeIs(1));
}

TEST(PostJsonTest, AClockThatIsSetCostsNoAttempt) {
  HttpListener server(
      [](size_t before) { return HttpAnswer(before == 0 ? 503 : 200); });
  MachineClock clock;
  bool was_set = false;
  const absl::Status said = PostJson({.url = server.url()}, "{}", [&] {
    if (!std::exchange(was_set, true)) clock.Set(absl::Hours(1));
    return false;
  });
  EXPECT_TRUE(said.ok()) << said;
  EXPECT_THAT(server.requests(), SizeIs(2));
}

TEST(PostJsonTest, AnAnswerWithoutAnEndHoldsNobody) {
  // The head reports success, but the rest never comes.
  HttpListener server([](size_t) {
    return "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" +
           std::string(100000, 'x');
  });
  EXPECT_TRUE(PostJson({.url = server.url()}, "{}", Never).ok());
}

TEST(PostJsonTest, WhereNobodyListensTheErrorSaysWhere) {
  std::string url;
  {
    HttpListener server([](size_t) { return ""; });
    url = server.url();
  }
  const absl::Status said = PostJson(
      {.url = url + "/hidden", .timeout = absl::Seconds(5)}, "{}", Never);
  EXPECT_TRUE(absl::IsUnavailable(said)) << said;
  EXPECT_THAT(std::string(said.message()), HasSubstr(url));
  EXPECT_THAT(std::string(said.message()), Not(HasSubstr("hidden")));
}

// Sets a variable of the environment for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(PostJsonTest, AnAddressOfThisMachineIsReachedWithoutTheProxy) {
  for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) {
    const Variable proxy(name, "http://127.0.0.1:1");
    HttpListener server([](size_t) { return HttpAnswer(200); });
    EXPECT_TRUE(PostJson({.url = server.url()}, "{}", Never).ok()) << name;
    EXPECT_THAT(server.requests(), SizeIs(1));
  }
}

TEST(PostJsonTest, AProxyThatDoesNotAnswerIsNamed) {
  const Variable proxy("http_proxy", "http://me:hidden@127.0.0.1:1");
  const absl::Status lost =
      PostJson({.url = "http://192.0.2.1/hook", .timeout = absl::Seconds(3)},
               "{}",
               Never);
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("http://192.0.2.1"),
                    HasSubstr("http_proxy names the proxy 127.0.0.1:1"),
                    HasSubstr("no_proxy"),
                    Not(HasSubstr("hidden"))));
}

TEST(PostJsonTest, WhoGivesUpIsNotHeld) {
  HttpListener server([](size_t) { return ""; });
  const absl::Time start = absl::Now();
  const absl::Status said =
      PostJson({.url = server.url(), .timeout = absl::Minutes(5)}, "{}", [&] {
        return absl::Now() - start > absl::Milliseconds(200);
      });
  EXPECT_TRUE(absl::IsCancelled(said)) << said;
  EXPECT_LT(absl::Now() - start, absl::Minutes(1));
}

TEST(LoadWebhookTest, ATokenIsABearerAndAHeaderIsItself) {
  RunConfig run;
  run.notify_url = "https://example.org/hook";
  run.notify_secret_file = SecretFile("abc.DEF=\n");
  EXPECT_EQ(LoadWebhook(run)->header, "Authorization: Bearer abc.DEF=");
  run.notify_secret_file = SecretFile("X-Token:  a b \n", "header");
  EXPECT_EQ(LoadWebhook(run)->header, "X-Token:  a b");
}

TEST(LoadWebhookTest, AUrlThatIsASecretComesOutOfAFile) {
  RunConfig run;
  run.notify_url = "file://" + SecretFile("https://example.org/hidden\n");
  EXPECT_EQ(LoadWebhook(run)->url, "https://example.org/hidden");
  run.notify_url = "file://" + SecretFile("ftp://example.org/hidden", "ftp");
  const absl::Status said = LoadWebhook(run).status();
  EXPECT_EQ(ExitCodeOf(said), ExitCode::kConfig);
  EXPECT_THAT(std::string(said.message()), HasSubstr("run.notify_url"));
  EXPECT_THAT(std::string(said.message()), Not(HasSubstr("hidden")));
}

TEST(LoadWebhookTest, ASecretThatIsNoHeaderIsRefusedAndNotRepeated) {
  RunConfig run;
  run.notify_url = "https://example.org/hook";
  for (const char* secret : {"",
                             "hidden\r\nX-Other: injected",
                             "hid den: value",
                             "hidden:",
                             "hid den",
                             "hidden\x01"}) {
    run.notify_secret_file = SecretFile(secret);
    const absl::Status said = LoadWebhook(run).status();
    EXPECT_EQ(ExitCodeOf(said), ExitCode::kConfig) << secret;
    EXPECT_THAT(std::string(said.message()),
                HasSubstr("run.notify_secret_file"));
    EXPECT_THAT(std::string(said.message()), Not(HasSubstr("hid")));
  }
}

TEST(LoadWebhookTest, AuthoritiesThatAreNotThereAreFoundBeforeTheRun) {
  RunConfig run;
  run.notify_url = "https://example.org/hook";
  run.notify_ca_file = TempPath("ca");
  for (const bool exists : {false, true}) {
    if (exists) {
      ASSERT_TRUE(WriteFileAtomically(run.notify_ca_file, "no").ok());
    }
    const absl::Status refused = LoadWebhook(run).status();
    EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfig) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("run.notify_ca_file"));
  }
  ASSERT_TRUE(
      WriteFileAtomically(run.notify_ca_file, CertificateAuthority("one").pem())
          .ok());
  EXPECT_TRUE(LoadWebhook(run).ok());
}

}  // namespace
}  // namespace dapd
