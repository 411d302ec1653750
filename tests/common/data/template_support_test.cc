#include "common/data/template_support.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<const ChatTemplate> Template(const std::string& source) {
  const std::string folder = TempPath("model");
  WriteSmallTokenizer(folder);
  EXPECT_TRUE(
      WriteFileAtomically(JoinPath(folder, "chat_template.jinja"), source)
          .ok());
  return ChatTemplate::Load(folder).value();
}

constexpr char kAll[] =
    "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}";
constexpr char kUserOnly[] =
    "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}"
    "{% endif %}{% endfor %}";
constexpr char kRaising[] =
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system "
    "role') }}{% endif %}{{ messages[0].content }}";

TEST(TemplateSupportTest, ATemplateThatShowsBothIsFound) {
  const auto chat = Template(kAll);
  EXPECT_TRUE(CheckShowsSystem(*chat).ok());
  EXPECT_TRUE(CheckShowsTools(*chat).ok());
}

TEST(TemplateSupportTest, ARefusalAndASilentOmissionAreNamedWithTheKey) {
  Config config;
  EXPECT_TRUE(CheckTemplateSupport(config, *Template(kRaising)).ok());
  config.prompts.system = "Be brief.";
  absl::Status status = CheckTemplateSupport(config, *Template(kRaising));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("prompts.system: the chat template does not take "
                              "a system message"),
                    HasSubstr("no system role")));
  config.prompts.system.clear();
  config.data.system = "Be brief.";
  status = CheckTemplateSupport(config, *Template(kUserOnly));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("data.system: the chat template leaves out a system"));
  config.data.system.clear();
  config.data.tools_column = "tools";
  EXPECT_THAT(
      std::string(CheckTemplateSupport(config, *Template(kUserOnly)).message()),
      HasSubstr("data.tools_column: the chat template leaves out tools"));
  EXPECT_TRUE(CheckTemplateSupport(config, *Template(kAll)).ok());
}

}  // namespace
}  // namespace dapd
