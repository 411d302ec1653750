// Input: tokenizer_config.json, which holds the chat template and the texts of
// special tokens.
// It is accepted or refused; an accepted template renders or says why not.
#include <memory>

#include "common/base/check.h"
#include "common/base/exit_code.h"
#include "common/tokenizer/chat_template.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

void Run(absl::string_view json) {
  static const ScratchFolder folder;
  folder.Write("tokenizer_config.json", json);
  const auto loaded = ChatTemplate::Load(folder.path());
  if (!loaded.ok()) {
    Check(ExitCodeOf(loaded.status()) == ExitCode::kData,
          "a bad file is the data's fault");
    return;
  }
  const std::vector<ChatMessage> messages = {{"user", "Q"}, {"assistant", "A"}};
  for (const bool prompt : {false, true}) {
    const auto text = (*loaded)->Render(
        messages, {.add_generation_prompt = prompt, .enable_thinking = prompt});
    Check(text.ok() || !text.status().message().empty(), "a refusal says why");
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
