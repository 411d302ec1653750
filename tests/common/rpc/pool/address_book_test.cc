#include "common/rpc/pool/address_book.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;

// Has a name server whose entries change.
class AddressBookTest : public testing::Test {
 protected:
  AddressBook Of(const std::vector<std::string>& addresses) {
    return {addresses,
            [this](const std::string& address)
                -> absl::StatusOr<std::vector<std::string>> {
              const auto found = names_.find(address);
              if (found == names_.end()) {
                return absl::UnavailableError("no such host");
              }
              return found->second;
            }};
  }

  std::map<std::string, std::vector<std::string>> names_;
};

TEST_F(AddressBookTest, ANameStandsForAllItsAddresses) {
  names_["a:1"] = {"1.1.1.1:1", "1.1.1.2:1"};
  names_["b:1"] = {"1.1.1.2:1"};
  AddressBook book = Of({"a:1", "b:1"});
  EXPECT_THAT(book.LookUp().endpoints,
              ElementsAre(Key("1.1.1.1:1"), Key("1.1.1.2:1")));
  names_["a:1"] = {"1.1.1.3:1"};
  EXPECT_THAT(book.LookUp().endpoints,
              ElementsAre(Key("1.1.1.2:1"), Key("1.1.1.3:1")));
}

TEST_F(AddressBookTest, ANameThatDoesNotResolveNowKeepsItsWorkers) {
  names_["a:1"] = {"1.1.1.1:1"};
  names_["b:1"] = {"2.2.2.2:1"};
  AddressBook book = Of({"a:1", "b:1"});
  book.LookUp();
  names_.erase("a:1");
  names_["b:1"] = {"2.2.2.3:1"};
  const AddressBook::Entries entries = book.LookUp();
  EXPECT_THAT(entries.endpoints,
              ElementsAre(Key("1.1.1.1:1"), Key("2.2.2.3:1")));
  EXPECT_THAT(entries.errors, ElementsAre(Key("a:1")));
}

TEST_F(AddressBookTest, WhatAFileNamesComesAndGoes) {
  names_["a:1"] = {"1.1.1.1:1"};
  names_["b:1"] = {"2.2.2.2:1"};
  names_["c:1"] = {"3.3.3.3:1"};
  const std::string path = TempPath("address_book.txt");
  AddressBook book = Of({"a:1", "file://" + path});
  AddressBook::Entries entries = book.LookUp();
  EXPECT_THAT(entries.endpoints, ElementsAre(Key("1.1.1.1:1")));
  EXPECT_THAT(entries.errors["file://" + path], HasSubstr("No such file"));

  ASSERT_TRUE(WriteFileAtomically(path, "b:1\nc:1\n").ok());
  entries = book.LookUp();
  EXPECT_THAT(
      entries.endpoints,
      ElementsAre(Key("1.1.1.1:1"), Key("2.2.2.2:1"), Key("3.3.3.3:1")));
  EXPECT_THAT(entries.errors, IsEmpty());

  // A name that does not resolve keeps no worker of another name.
  ASSERT_TRUE(WriteFileAtomically(path, "c:1\nd:1\n").ok());
  entries = book.LookUp();
  EXPECT_THAT(entries.endpoints,
              ElementsAre(Key("1.1.1.1:1"), Key("3.3.3.3:1")));
  EXPECT_THAT(entries.errors, ElementsAre(Key("d:1")));
}

}  // namespace
}  // namespace dapd
