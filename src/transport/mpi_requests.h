// The MPI requests a process has under way, looked at together: one call of MPI moves all of them.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace moetax {

class MpiRequests {
 public:
  // Whom a request belongs to. Must outlive it or drop() it.
  class Owner {
   public:
    virtual ~Owner() = default;
    // `bytes` is what came, of a receive; `truncated` if that was more than there was room for, and then `bytes` is
    // only what the library knows of.
    virtual void completed(std::uint32_t id, int source, std::size_t bytes, bool truncated) = 0;
  };

  // `on_error` hears what MPI says of a request, or of all, that failed.
  explicit MpiRequests(std::function<void(const std::string&)> on_error) : on_error_(std::move(on_error)) {}
  MpiRequests(const MpiRequests&) = delete;
  MpiRequests& operator=(const MpiRequests&) = delete;

  void add(MPI_Request request, Owner& owner, std::uint32_t id, bool is_receive);
  // Tells the owners of those that have completed. They may add new ones meanwhile.
  void progress();
  // Forgets the owner's requests: receives are cancelled, sends go on by themselves, their bytes must stay.
  void drop(const Owner& owner);
  bool check(int code, const char* call);  // whether MPI reports success; tells on_error otherwise

 private:
  struct Entry {
    Owner* owner = nullptr;
    std::uint32_t id = 0;
    bool is_receive = false;
  };
  struct Finished {
    Entry entry;
    MPI_Status status;
  };
  void remove(std::size_t idx);
  void tell(const Finished& finished, bool look_for_error);

  std::function<void(const std::string&)> on_error_;
  std::vector<MPI_Request> requests_;
  std::vector<Entry> entries_;  // beside requests_
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<Finished> finished_;
};

// "MPI_Isend: MPI_ERR_RANK: invalid rank"
std::string mpi_error_text(const char* call, int code);

}  // namespace moetax
