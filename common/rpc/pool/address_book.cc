#include "common/rpc/pool/address_book.h"

#include <utility>

#include "absl/status/statusor.h"

#include "common/config/validate_config.h"

namespace dapd {

AddressBook::AddressBook(const std::vector<std::string>& addresses,
                         AddressResolver resolver)
    : resolver_(std::move(resolver)) {
  for (const std::string& address : addresses) {
    if (const auto path = AddressFilePath(address)) {
      files_.try_emplace(address, *path);
    } else {
      names_.push_back(address);
    }
  }
}

AddressBook::Entries AddressBook::LookUp() {
  Entries entries;
  std::set<std::string> wanted(names_.begin(), names_.end());
  for (auto& [address, file] : files_) {
    const absl::StatusOr<std::vector<std::string>> named = file.Read();
    if (named.ok()) {
      wanted.insert(named->begin(), named->end());
    } else {
      entries.errors[address] = std::string(named.status().message());
    }
  }
  // A name that comes again after it has left starts afresh.
  std::erase_if(resolved_, [&](const auto& entry) {
    return !wanted.contains(entry.first);
  });
  for (const std::string& address : wanted) Resolve(address, &entries);
  return entries;
}

void AddressBook::Resolve(const std::string& address, Entries* entries) {
  absl::StatusOr<std::vector<std::string>> found = resolver_(address);
  if (!found.ok()) {
    entries->errors[address] = std::string(found.status().message());
  } else {
    resolved_[address] = *std::move(found);
  }
  const auto known = resolved_.find(address);
  if (known == resolved_.end()) return;
  for (const std::string& endpoint : known->second) {
    entries->endpoints[endpoint].insert(address);
  }
}

}  // namespace dapd
