// The way from one process to the ranks of its world that share no memory with it.
//
// A process has one link for all its communicators; their number tells them apart ("context", 0 for the world).
// Everything is used from the rank's own thread, and nothing blocks. What a communicator gets from ranks elsewhere
// comes through its FarListener, during progress(). From one rank to another all of it arrives in the order it was
// sent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "moetax/base/ids.h"
#include "moetax/transport/communicator.h"
#include "transport/group.h"
#include "transport/messages.h"

namespace moetax {

// A flag of Group: `line` is a Channel, or kNumChannels for set-up calls.
struct FarFlag {
  std::uint32_t context = 0;
  std::uint32_t line = 0;
  std::uint64_t value = 0;
  Note note;
};

class FarListener {
 public:
  virtual ~FarListener() = default;
  virtual void take_flag(Rank world_from, const FarFlag& flag, std::int64_t posted_ns) = 0;  // by this node's clock
  // A set-up call's round: the flag `round` of its line is up and the offer is there.
  virtual void take_offer(Rank world_from, std::uint64_t round, const Offer& offer, std::int64_t posted_ns) = 0;
};

class FarLink {
 public:
  virtual ~FarLink() = default;

  // What comes for a context before it is opened is kept for it; what comes after it was closed is dropped.
  virtual void open(std::uint32_t context, FarListener& listener) = 0;
  virtual void close(std::uint32_t context) = 0;
  // Contexts from here on are unused on this process. All ranks of a communicator agree on the largest of theirs.
  virtual std::uint32_t unused_context() const = 0;
  virtual void use_contexts_up_to(std::uint32_t context) = 0;

  virtual void post(Rank world_to, const FarFlag& flag) = 0;
  virtual void offer(Rank world_to, std::uint32_t context, std::uint64_t round, const Offer& offer) = 0;
  virtual std::unique_ptr<Messages> messages(std::uint32_t context, std::span<const Rank> members) = 0;

  // Tells all other nodes how `world_rank` ended, as the roster has it. News from them is entered into the roster.
  virtual void tell_end(Rank world_rank) = 0;
  // Another rank of this node may have heard of an end first, while what the ended rank posted to this one before is
  // still on its way. Whether all of it is here; and a number that grows when that changes for some rank.
  virtual bool heard_out(Rank world_rank) const = 0;
  virtual std::uint32_t num_heard_out() const = 0;

  // Moves what can be moved, and now and then looks whether the other ranks of this node live.
  virtual void progress() = 0;

  // Add to a time of that rank's clock to get this node's.
  virtual std::int64_t clock_offset_ns(Rank world_rank) const = 0;
  virtual bool any_thread() const = 0;  // see Communicator
};

}  // namespace moetax
