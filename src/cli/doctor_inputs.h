// What moetax doctor is given: files, folders, standard input, this machine.
#pragma once

#include <string>
#include <vector>

#include "moetax/doctor/doctor.h"

namespace moetax::cli {

struct DoctorInputs {
  std::vector<doctor::Input> read;
  std::vector<doctor::Skipped> unreadable;
};

// Folders stand for the files in them. Of very large files the beginning and the end are read, and that is said. `here`
// adds this machine's environment, limits and, where the tools are, its topology.
DoctorInputs read_inputs(const std::vector<std::string>& files, bool here);

}  // namespace moetax::cli
