// Input: number of merges, pairs of them, then a word.
// BPE with a heap gives the result of merging the best pair again and again.
#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/byte_alphabet.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

constexpr size_t kMaxTokenBytes = 64;
constexpr size_t kMaxWordBytes = 400;

struct Rules {
  std::vector<std::string> tokens;  // by id, in the byte alphabet
  std::vector<std::pair<int32_t, int32_t>> merges;
};

// Takes merges of existing tokens: letters a to d and earlier merges.
Rules TakeRules(InputReader& input) {
  Rules rules;
  for (int byte = 0; byte < 256; ++byte) {
    rules.tokens.push_back(
        ByteAlphabet::Get().Symbol(static_cast<uint8_t>(byte)));
  }
  std::vector<int32_t> parts = {'a', 'b', 'c', 'd'};
  const int count = input.Byte() % 32;
  for (int i = 0; i < count; ++i) {
    const int32_t left = parts[input.Byte() % parts.size()];
    const int32_t right = parts[input.Byte() % parts.size()];
    const std::string text = rules.tokens[static_cast<size_t>(left)] +
                             rules.tokens[static_cast<size_t>(right)];
    if (text.size() > kMaxTokenBytes) continue;
    rules.merges.emplace_back(left, right);
    if (std::find(rules.tokens.begin(), rules.tokens.end(), text) ==
        rules.tokens.end()) {
      parts.push_back(static_cast<int32_t>(rules.tokens.size()));
      rules.tokens.push_back(text);
    }
  }
  return rules;
}

nlohmann::json ToJson(const Rules& rules) {
  nlohmann::json vocab;
  for (size_t id = 0; id < rules.tokens.size(); ++id) {
    vocab[rules.tokens[id]] = id;
  }
  nlohmann::json merges = nlohmann::json::array();
  for (const auto& [left, right] : rules.merges) {
    merges.push_back({rules.tokens[static_cast<size_t>(left)],
                      rules.tokens[static_cast<size_t>(right)]});
  }
  return {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
}

std::vector<int32_t> SlowEncode(const Rules& rules, const std::string& word) {
  std::vector<int32_t> ids;
  for (const char c : word) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    size_t best_rank = rules.merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      // If a merge is listed twice, the last entry counts.
      const auto found = std::find(rules.merges.rbegin(),
                                   rules.merges.rend(),
                                   std::pair(ids[i], ids[i + 1]));
      if (found == rules.merges.rend()) continue;
      const auto rank =
          static_cast<size_t>(rules.merges.rend() - found) - size_t{1};
      if (rank < best_rank) {
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == rules.merges.size()) return ids;
    const std::string text = rules.tokens[static_cast<size_t>(ids[best])] +
                             rules.tokens[static_cast<size_t>(ids[best + 1])];
    ids[best] = static_cast<int32_t>(
        std::find(rules.tokens.begin(), rules.tokens.end(), text) -
        rules.tokens.begin());
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

void Run(InputReader input) {
  const Rules rules = TakeRules(input);
  std::string word = input.Rest().substr(0, kMaxWordBytes);
  // Most letters become letters that merge.
  for (char& c : word) {
    if ((c & 0x80) == 0) c = static_cast<char>('a' + c % 4);
  }
  const Bpe bpe = Bpe::Parse(ToJson(rules)).value();
  std::vector<int32_t> ids;
  bpe.Encode(word, &ids);
  Check(ids == SlowEncode(rules, word), "fast and slow BPE agree");
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size));
  return 0;
}
