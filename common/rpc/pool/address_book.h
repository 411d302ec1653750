// AddressBook: which workers the configured addresses stand for at the moment.
// An address is "host:port", where a name may have several addresses, or
// "file://PATH", whose lines are such (address_file.h).
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
    // "ip:port", and the names that stand for it.
    std::map<std::string, std::set<std::string>> endpoints;
    // By address, what could not be read or resolved, and why.
    std::map<std::string, std::string> errors;
  };
  // Reads files and resolves names anew; blocks for as long as that takes. A
  // failure says nothing about workers: a name then stands for those of the
  // last time.
  Entries LookUp();

 private:
  void Resolve(const std::string& address, Entries* entries);

  const AddressResolver resolver_;
  std::vector<std::string> names_;
  std::map<std::string, AddressFile> files_;                  // by address
  std::map<std::string, std::vector<std::string>> resolved_;  // by address
};

}  // namespace dapd
