// Input: tokenizer.json.
// An accepted tokenizer encodes every text into existing ids, which decode into
// well-formed text.
#include <memory>

#include "common/base/check.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/unicode_text.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

constexpr const char* kTexts[] = {
    "",
    "hi",
    "  Let's add 12 + 345.\r\n\n\tOk?",
    "e\xCC\x81 \xE4\xB8\xAD\xF0\x9F\x98\x80 <end><|im_end|>"};

void Run(absl::string_view json) {
  static const ScratchFolder folder;
  folder.Write("tokenizer.json", json);
  const auto tokenizer = Tokenizer::Load(folder.path());
  if (!tokenizer.ok()) return;
  for (const char* text : kTexts) {
    const std::vector<int32_t> ids = (*tokenizer)->Encode(text).value();
    const std::string all = (*tokenizer)->Decode(ids, false).value();
    const std::string plain = (*tokenizer)->Decode(ids, true).value();
    Check(DecodeUtf8(all).ok(), "decoded text is well-formed");
    Check(plain.size() <= all.size(), "skipping adds nothing");
  }
  Check(!(*tokenizer)->IsSpecial(-1), "no token has id -1");
  Check(!(*tokenizer)->IsSpecial((*tokenizer)->size()), "ids end at size");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
