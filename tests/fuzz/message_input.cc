#include "tests/fuzz/message_input.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace dapd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::mt19937;

constexpr int kMaxEntries = 64;  // of a repeated field

class Silent : public google::protobuf::io::ErrorCollector {
  void AddError(int, int, const std::string&) override {}
};

size_t Below(Random& random, size_t limit) {
  return std::uniform_int_distribution<size_t>(0, limit - 1)(random);
}

// Collects all messages of the tree that have fields.
void Collect(Message* message, std::vector<Message*>* all) {
  if (message->GetDescriptor()->field_count() > 0) all->push_back(message);
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection.MutableMessage(message, field), all);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      Collect(reflection.MutableRepeatedMessage(message, field, i), all);
    }
  }
}

template <typename Number>
Number MutateNumber(Number old, Random& random) {
  using Limits = std::numeric_limits<Number>;
  switch (Below(random, 5)) {
    case 0:
      return Number(Below(random, 20));
    case 1:
      return Below(random, 2) == 0 ? Limits::max() : Limits::lowest();
    case 2:
      return std::is_floating_point_v<Number>
                 ? (Below(random, 2) == 0 ? Limits::quiet_NaN()
                                          : Limits::denorm_min())
                 : Number(uint64_t{1} << Below(random, 63));
    default:
      break;
  }
  // The new value is near the old value and within the type's range.
  const Number step = Number(1 + Below(random, 3));
  return Below(random, 2) == 0
             ? (old > Limits::max() - step ? old : Number(old + step))
             : (old < Limits::lowest() + step ? old : Number(old - step));
}

std::string MutateText(std::string text, Random& random) {
  switch (Below(random, 4)) {
    case 0:
      return "";
    case 1:
      return text.substr(0, 4096) + text.substr(0, 4096);
    case 2:
      text.insert(Below(random, text.size() + 1),
                  1,
                  static_cast<char>(Below(random, 256)));
      return text;
    default:
      if (!text.empty()) {
        text[Below(random, text.size())] ^=
            static_cast<char>(1 << Below(random, 8));
      }
      return text;
  }
}

// Sets a field. If the field is repeated, adds an entry (`index` < 0) or
// changes an entry.
void SetField(Message* message,
              const FieldDescriptor* field,
              int index,
              Random& random) {
  const Reflection& r = *message->GetReflection();
  const bool add = field->is_repeated() && index < 0;
#define DAPD_FUZZ_SET(CppType, Type, Change)                             \
  case FieldDescriptor::CPPTYPE_##CppType:                               \
    if (add) {                                                           \
      r.Add##Type(message, field, Change({}, random));                   \
    } else if (field->is_repeated()) {                                   \
      r.SetRepeated##Type(                                               \
          message,                                                       \
          field,                                                         \
          index,                                                         \
          Change(r.GetRepeated##Type(*message, field, index), random));  \
    } else {                                                             \
      r.Set##Type(                                                       \
          message, field, Change(r.Get##Type(*message, field), random)); \
    }                                                                    \
    break
  switch (field->cpp_type()) {
    DAPD_FUZZ_SET(INT32, Int32, MutateNumber<int32_t>);
    DAPD_FUZZ_SET(INT64, Int64, MutateNumber<int64_t>);
    DAPD_FUZZ_SET(UINT32, UInt32, MutateNumber<uint32_t>);
    DAPD_FUZZ_SET(UINT64, UInt64, MutateNumber<uint64_t>);
    DAPD_FUZZ_SET(FLOAT, Float, MutateNumber<float>);
    DAPD_FUZZ_SET(DOUBLE, Double, MutateNumber<double>);
    DAPD_FUZZ_SET(STRING, String, MutateText);
    case FieldDescriptor::CPPTYPE_BOOL:
      r.SetBool(message, field, Below(random, 2) == 0);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      r.SetEnumValue(message, field, static_cast<int>(Below(random, 8)) - 1);
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (add) {
        r.AddMessage(message, field);
      } else if (!field->is_repeated()) {
        r.MutableMessage(message, field);
      }
      break;
  }
#undef DAPD_FUZZ_SET
}

void MutateRepeated(Message* message,
                    const FieldDescriptor* field,
                    Random& random) {
  const Reflection& r = *message->GetReflection();
  const int size = r.FieldSize(*message, field);
  if (size == 0) return SetField(message, field, -1, random);
  const auto one = static_cast<int>(Below(random, static_cast<size_t>(size)));
  const auto other = static_cast<int>(Below(random, static_cast<size_t>(size)));
  switch (Below(random, 5)) {
    case 0:
      r.SwapElements(message, field, one, size - 1);
      r.RemoveLast(message, field);
      break;
    case 1:
      r.SwapElements(message, field, one, other);
      break;
    case 2:
      if (size >= kMaxEntries) break;
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        const Message& copied = r.GetRepeatedMessage(*message, field, one);
        r.AddMessage(message, field)->CopyFrom(copied);
      } else {
        SetField(message, field, -1, random);
      }
      break;
    default:
      SetField(message, field, one, random);
  }
}

void MutateOnce(Message* message, Random& random) {
  std::vector<Message*> all;
  Collect(message, &all);
  Message* chosen = all[Below(random, all.size())];
  const auto& descriptor = *chosen->GetDescriptor();
  const FieldDescriptor* field = descriptor.field(static_cast<int>(
      Below(random, static_cast<size_t>(descriptor.field_count()))));
  if (field->is_repeated()) return MutateRepeated(chosen, field, random);
  if (Below(random, 8) == 0) {
    return chosen->GetReflection()->ClearField(chosen, field);
  }
  SetField(chosen, field, 0, random);
}

}  // namespace

bool ParseInput(const uint8_t* data, size_t size, Message* message) {
  google::protobuf::TextFormat::Parser parser;
  Silent silent;
  parser.RecordErrorsTo(&silent);
  parser.SetRecursionLimit(20);
  return parser.ParseFromString(
      std::string(reinterpret_cast<const char*>(data), size), message);
}

size_t MutateMessage(uint8_t* data,
                     size_t size,
                     size_t max_size,
                     unsigned seed,
                     Message* scratch) {
  if (!ParseInput(data, size, scratch)) scratch->Clear();
  Random random(seed);
  const size_t changes = 1 + Below(random, 3);
  for (size_t i = 0; i < changes; ++i) MutateOnce(scratch, random);
  std::string text;
  google::protobuf::TextFormat::PrintToString(*scratch, &text);
  if (text.size() > max_size) return size;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

}  // namespace dapd
