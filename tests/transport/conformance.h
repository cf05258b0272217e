// What every transport must do, as one suite over (transport, number of ranks). A transport is a Launcher; its test
// program includes this file once and instantiates the suite:
//
//   INSTANTIATE_CONFORMANCE(Local, &kThreads, &kProcesses);
//
// A rank's body may run in another process, where a failed GoogleTest assertion would be lost. So bodies check with
// REQUIRE, which prints and returns 1 from the body, and the test asserts that all bodies returned 0.
#pragma once

#include "transport/conformance_base.h"
#include "transport/conformance_collectives.h"
#include "transport/conformance_failures.h"
#include "transport/conformance_flags.h"
#include "transport/conformance_messages.h"
