// UnreadRowKeys: the keys of JSON Lines rows beside the keys that a command
// reads, so that nothing is passed over without a word.
#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dapd {

// Not thread-safe.
class UnreadRowKeys {
 public:
  // The keys of `row` that are not among `known` and hold something. `place`
  // leads a key's name: "messages[]." for the keys of a message.
  void Add(const nlohmann::json& row,
           std::initializer_list<const char*> known,
           const std::string& where,
           const std::string& place = "");

  // Warns of them, each once, with the first row that has it. `path`: of the
  // rows.
  void Report(const std::string& path) const;

 private:
  std::map<std::string, std::string> first_;  // key -> where
};

}  // namespace dapd
