// AddressBook: the workers that the configured addresses name at the moment. An
// address is "host:port", where a name may have several addresses, or
// "file://PATH", a file of such addresses (address_file.h).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/rpc/pool/address_file.h"
#include "common/rpc/pool/address_resolver.h"

namespace dapd {

// Not thread-safe.
class AddressBook {
 public:
  AddressBook(const std::vector<std::string>& addresses,
              AddressResolver resolver);

  struct Entries {
    // "ip:port", and the names that lead to it.
    std::map<std::string, std::set<std::string>> endpoints;
    // The reason, by address, why it could not be read or resolved.
    std::map<std::string, std::string> errors;
  };
  // Reads all files and resolves all names again; blocks as long as this takes.
  // A failure says nothing about workers: the name keeps its last endpoints.
  Entries LookUp();

 private:
  void Resolve(const std::string& address, Entries* entries);

  const AddressResolver resolver_;
  std::vector<std::string> names_;
  std::map<std::string, AddressFile> files_;                  // by address
  std::map<std::string, std::vector<std::string>> resolved_;  // by address
};

}  // namespace dapd
