#include "services/trainer/status/page/page.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/base/sha256.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns the text between the only `open` and the next `close`.
std::string Between(const std::string& text,
                    const std::string& open,
                    const std::string& close) {
  const size_t begin = text.find(open);
  EXPECT_NE(begin, std::string::npos) << open;
  EXPECT_EQ(text.find(open, begin + 1), std::string::npos) << open;
  const size_t from = begin + open.size();
  return text.substr(from, text.find(close, from) - from);
}

std::string HashSource(const std::string& text) {
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(text))),
      "'");
}

TEST(PageTest, ThePolicyAllowsExactlyTheScriptAndTheStyleInside) {
  const std::string& html = StatusPageHtml();
  const std::string script = Between(html, "<script>", "</script>");
  const std::string style = Between(html, "<style>", "</style>");
  for (const std::string& policy :
       {StatusPagePolicy(),
        Between(html, "Security-Policy\" content=\"", "\"")}) {
    EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
    EXPECT_THAT(policy, HasSubstr("script-src " + HashSource(script) + ";"));
    EXPECT_THAT(policy, HasSubstr("style-src " + HashSource(style) + ";"));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  }
  EXPECT_THAT(StatusPagePolicy(), HasSubstr("frame-ancestors 'none'"));
}

TEST(PageTest, NoPlaceholderAndNoForeignAddressIsLeft) {
  for (const std::string& html : {StatusPageHtml(), ReportHtml({{"a", 1}})}) {
    EXPECT_THAT(html, Not(HasSubstr("{{")));
    EXPECT_THAT(html, Not(HasSubstr("https:")));
    EXPECT_THAT(html, Not(HasSubstr("src=")));
    // The only addresses are names of XML namespaces.
    for (size_t at = html.find("http:"); at != std::string::npos;
         at = html.find("http:", at + 1)) {
      EXPECT_TRUE(absl::StartsWith(html.substr(at), "http://www.w3.org/"));
    }
  }
}

TEST(PageTest, AReportAsksNobody) {
  EXPECT_THAT(ReportHtml({}), Not(HasSubstr("connect-src")));
  EXPECT_THAT(StatusPagePolicy(), HasSubstr("connect-src 'self'"));
}

TEST(PageTest, DataCannotEndItsElement) {
  const std::string evil = "</script><script>alert(1)</script><!--{{script}}";
  const std::string html = ReportHtml({{"outcome", evil}});
  EXPECT_THAT(html, Not(HasSubstr("alert(1)</script>")));
  const std::string data =
      Between(html, "type=\"application/json\" id=\"data\">", "</script>");
  EXPECT_EQ(nlohmann::ordered_json::parse(data)["outcome"], evil);
}

TEST(PageTest, TextThatIsNoUtf8DoesNotCostTheReport) {
  EXPECT_THAT(ReportHtml({{"outcome", "\xff\xfe broken"}}),
              HasSubstr(" broken"));
}

}  // namespace
}  // namespace dapd
