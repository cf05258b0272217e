#include "transport/mpi_messages.h"

#include <climits>

namespace moetax {
namespace {

// MPI counts in int: more bytes travel as one element of a type of that size.
class Extent {
 public:
  explicit Extent(std::size_t bytes) {
    if (bytes <= INT_MAX) {
      count_ = static_cast<int>(bytes);
      return;
    }
    constexpr std::size_t kPiece = std::size_t{1} << 30;
    MPI_Datatype piece = MPI_DATATYPE_NULL, pieces = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(kPiece), MPI_BYTE, &piece);
    MPI_Type_contiguous(static_cast<int>(bytes / kPiece), piece, &pieces);
    const int lengths[] = {1, static_cast<int>(bytes % kPiece)};
    const MPI_Aint starts[] = {0, static_cast<MPI_Aint>(bytes / kPiece * kPiece)};
    const MPI_Datatype types[] = {pieces, MPI_BYTE};
    MPI_Type_create_struct(2, lengths, starts, types, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&piece);
    MPI_Type_free(&pieces);
    count_ = 1;
  }
  // Transfers under way keep the type.
  ~Extent() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  Extent(const Extent&) = delete;
  Extent& operator=(const Extent&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
};

}  // namespace

Message MpiMessages::send(Rank to, std::span<const std::byte> bytes) {
  const Message message = open(to, bytes.size(), false);
  const Extent extent(bytes.size());
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(bytes.data(), extent.count(), extent.type(), members_[static_cast<std::size_t>(to)], tag_,
                             comm_, &request);
  if (requests_.check(code, "MPI_Isend")) requests_.add(request, *this, message, false);
  return message;
}

Message MpiMessages::receive(Rank from, std::span<std::byte> bytes) {
  const Message message = open(from, bytes.size(), true);
  const Extent extent(bytes.size());
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(bytes.data(), extent.count(), extent.type(), members_[static_cast<std::size_t>(from)],
                             tag_, comm_, &request);
  if (requests_.check(code, "MPI_Irecv")) requests_.add(request, *this, message, true);
  return message;
}

Message MpiMessages::open(Rank peer, std::size_t size, bool is_receive) {
  if (free_.empty()) {
    free_.push_back(static_cast<Message>(transfers_.size()));
    transfers_.emplace_back();
  }
  const Message message = free_.back();
  free_.pop_back();
  transfers_[message] = {.peer = peer, .is_receive = is_receive, .size = size};
  ++open_;
  return message;
}

void MpiMessages::completed(std::uint32_t id, int, std::size_t bytes, bool truncated) {
  Transfer& transfer = transfers_[id];
  transfer.done = true;
  transfer.came = transfer.is_receive ? bytes : transfer.size;
  if (truncated && bytes <= transfer.size) transfer.came = kMoreThanExpected;
  --open_;
}

std::size_t MpiMessages::take(Message message) {
  transfers_[message].done = false;
  free_.push_back(message);
  return transfers_[message].came;
}

}  // namespace moetax
