#include "common/charts/html_page.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTemplate[] =
    "<meta content=\"{{policy}}\"><style>{{style}}</style>"
    "<script id=\"data\">{{data}}</script><script>{{script}}</script>";

TEST(HtmlPageTest, ScriptsShareAScopeInTheirOrder) {
  const HtmlPage page(kTemplate, {"const a = 1;\n", "show(a);\n"});
  EXPECT_THAT(page.With(nlohmann::ordered_json()),
              HasSubstr("<script>(() => {\n\"use strict\";\nconst a = "
                        "1;\nshow(a);\n})();\n</script>"));
}

TEST(HtmlPageTest, DataCannotEndItsElement) {
  const HtmlPage page(kTemplate, {"x"});
  const std::string html = page.With({{"name", "</script><b>\xff"}});
  EXPECT_THAT(html, HasSubstr("\\u003c/script>\\u003cb>"));
  EXPECT_THAT(html, Not(HasSubstr("</script><b>")));
}

TEST(HtmlPageTest, OnlyAPageThatAsksItsServerMay) {
  const HtmlPage page(kTemplate, {"x"});
  EXPECT_THAT(page.Policy(true), HasSubstr("connect-src 'self'"));
  EXPECT_THAT(page.Policy(false), Not(HasSubstr("connect-src")));
  EXPECT_THAT(page.With(nlohmann::ordered_json()),
              HasSubstr(page.Policy(false)));
}

}  // namespace
}  // namespace dapd
