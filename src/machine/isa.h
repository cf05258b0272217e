// The instruction set of this processor that matters for matrix products.
#pragma once

namespace moetax {

struct Isa {
  const char* name = "baseline";  // one of those that HostInfo::isa lists
  bool bf16 = false;              // bf16 dot products in hardware
};

// From CPUID (x86) or the kernel's capability bits (Arm); instructions count only when the kernel saves their
// registers.
Isa detect_isa();

}  // namespace moetax
