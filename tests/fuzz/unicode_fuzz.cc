// Input: bytes.
// Decoding, repairing and composing agree with each other, and the byte
// alphabet writes every byte.
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/unicode_text.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

void Run(absl::string_view bytes) {
  const auto points = DecodeUtf8(bytes);
  const std::string repaired = RepairUtf8(bytes);
  Check(points.ok() == (repaired == bytes), "only ill-formed text is changed");
  Check(points.ok() == IsUtf8(bytes), "two decoders agree");
  Check(DecodeUtf8(repaired).ok(), "repaired text is well-formed");
  if (points.ok()) {
    size_t position = 0;
    for (const CodePoint& point : *points) {
      Check(point.begin == position && point.end > point.begin,
            "code points follow each other");
      position = point.end;
    }
    Check(position == bytes.size(), "code points reach to the end");
  }
  const std::string composed = ComposeNfc(repaired);
  Check(ComposeNfc(composed) == composed, "composed text stays as it is");

  std::string symbols;
  for (const char c : bytes) {
    symbols += ByteAlphabet::Get().Symbol(static_cast<uint8_t>(c));
  }
  Check(ByteAlphabet::Get().ToBytes(symbols) == bytes, "bytes survive");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
