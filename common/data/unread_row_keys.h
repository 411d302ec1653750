// UnreadRowKeys collects the keys of JSON Lines rows that a command does not
// read, so that none of them is ignored silently.
#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dapd {

// Not thread-safe.
class UnreadRowKeys {
 public:
  // Adds the keys of `row` that are not in `known` and hold a value. `Json`:
  // nlohmann::json or nlohmann::ordered_json.
  template <typename Json>
  void Add(const Json& row,
           std::initializer_list<const char*> known,
           const std::string& where);

  // Logs a warning that names each key once, with the first row that has it.
  // `path` is the path of the rows.
  void Report(const std::string& path) const;

 private:
  std::map<std::string, std::string> first_;  // key -> where
};

}  // namespace dapd
