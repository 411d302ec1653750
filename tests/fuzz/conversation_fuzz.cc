// Input: the JSON text of a row's conversation, or of its tools.
// An accepted conversation has a user message and roles that templates know;
// its parts survive as recorded material, and tools are a list that is read
// again alike.
#include <algorithm>

#include "common/base/check.h"
#include "common/base/json_lines.h"
#include "common/data/chat_messages.h"
#include "common/data/row_material.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

bool IsRole(const ChatMessage& message) {
  return message.role == "user" || message.role == "assistant" ||
         message.role == "tool";
}

void Run(absl::string_view text) {
  RowMaterial material;
  if (auto tools = ParseTools(text); tools.ok()) {
    // As a text they keep keys of null.
    const auto again = ParseTools(nlohmann::json(*tools).dump());
    Check(again.ok() && *again == *tools, "tools are read again alike");
    material.tools = *std::move(tools);
  }
  if (auto chat = ParseConversation(text); chat.ok()) {
    Check(chat->user.role == "user", "the problem is a user's message");
    Check(std::ranges::all_of(chat->before, IsRole) &&
              std::ranges::all_of(chat->after, IsRole),
          "every role is known");
    material.system = std::move(chat->system);
    material.before = std::move(chat->before);
    material.after = std::move(chat->after);
    material.user_more = std::move(chat->user.more);
  }
  const auto json = ParseOrderedJson(MaterialJson(material).dump(), "");
  // The material nests a little deeper than the text, past the limit.
  if (!json.ok()) return;
  const auto again = ParseMaterial(*json);
  Check(again.ok() && **again == material, "material survives");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
