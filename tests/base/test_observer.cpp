#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "moetax/base/observer.h"

namespace moetax {
namespace {

class Recorder final : public Observer {
 public:
  void enter(Part, const char* name) override { events.push_back(std::string("enter ") + name); }
  void leave() override { events.emplace_back("leave"); }
  void waited(const WaitRecord&) override {}
  void exchanged(const ExchangeRecord&) override {}
  std::vector<std::string> events;
};

TEST(Span, OpensAndClosesInNestingOrder) {
  Recorder recorder;
  {
    const Span outer(&recorder, Part::kCompute, "outer");
    const Span inner(&recorder, Part::kPack, "inner");
  }
  EXPECT_EQ(recorder.events, (std::vector<std::string>{"enter outer", "enter inner", "leave", "leave"}));
}

TEST(Span, ObservingNobodyIsFine) {
  const Span span(nullptr, Part::kWire, "nobody");
  SUCCEED();
}

}  // namespace
}  // namespace moetax
