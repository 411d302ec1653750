// Inputs are protobuf messages, written as text, so that people can read a
// corpus and understand a finding. A target includes this file once and gets
// ParseInput and a mutator that changes the message and not its letters:
//
//   DAPD_FUZZ_MESSAGES(dapd::fuzz::TensorStream, dapd::Run)
#pragma once

#include <cstddef>
#include <cstdint>

#include "google/protobuf/message.h"

namespace dapd {

// Returns false if the text is no such message.
bool ParseInput(const uint8_t* data,
                size_t size,
                google::protobuf::Message* message);

// Changes the message that `data` holds at random, seeded by `seed`: drops,
// copies and swaps entries, and sets fields to extreme and to near values.
// Returns the new size.
size_t MutateMessage(uint8_t* data,
                     size_t size,
                     size_t max_size,
                     unsigned seed,
                     google::protobuf::Message* scratch);

}  // namespace dapd

// Defines libFuzzer's entry points of a target whose input is one `Message`,
// which `run` takes.
#define DAPD_FUZZ_MESSAGES(Message, run)                                    \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    Message message;                                                        \
    if (dapd::ParseInput(data, size, &message)) run(message);               \
    return 0;                                                               \
  }                                                                         \
  extern "C" size_t LLVMFuzzerCustomMutator(                                \
      uint8_t* data, size_t size, size_t max_size, unsigned seed) {         \
    Message message;                                                        \
    return dapd::MutateMessage(data, size, max_size, seed, &message);       \
  }
