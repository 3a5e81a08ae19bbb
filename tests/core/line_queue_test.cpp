/// Lines for readers that read, that wait, and that are gone.
#include "core/line_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace baton::log {
namespace {

constexpr std::chrono::minutes kLong{10};  // as long as a test may last

void ignore_dropped(std::int64_t) {}

class LineQueueTest : public testing::Test {
 protected:
  LineQueueTest() {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    queue_ = std::make_shared<LineQueue>(ends_[1]);
  }
  ~LineQueueTest() override {
    close_reader();
    ::close(ends_[1]);
  }
  void close_reader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  /// What can be read now.
  std::string read_all() {
    std::string text;
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::array<char, 4096> piece{};
    for (ssize_t n = 0; (n = ::read(ends_[0], piece.data(), piece.size())) > 0;)
      text.append(piece.data(), static_cast<std::size_t>(n));
    return text;
  }

  std::array<int, 2> ends_{};
  std::shared_ptr<LineQueue> queue_;
};

TEST_F(LineQueueTest, writes_at_once_without_a_thread) {
  queue_->write("a\n");
  EXPECT_EQ(read_all(), "a\n");
  EXPECT_EQ(queue_->n_dropped(), 0);
}

TEST_F(LineQueueTest, a_thread_writes_everything_in_order_before_it_ends) {
  queue_->begin(ignore_dropped);
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = std::to_string(i) + "\n";
    queue_->write(line);
    expected += line;
  }
  queue_->end(kLong);
  queue_->write("last\n");
  EXPECT_EQ(read_all(), expected + "last\n");
  EXPECT_EQ(queue_->n_dropped(), 0);
}

TEST_F(LineQueueTest, a_reader_that_is_gone_costs_the_lines_and_nothing_else) {
  queue_->begin(ignore_dropped);
  close_reader();
  for (int i = 0; i < 10; ++i) queue_->write("line\n");
  queue_->end(kLong);  // not the end of the program by SIGPIPE
  EXPECT_EQ(queue_->n_dropped(), 10);
}

TEST_F(LineQueueTest, a_reader_that_does_not_read_holds_up_no_writer) {
  queue_->begin(ignore_dropped);
  const std::string line(999, 'x');
  constexpr int kLines = 5000;
  // A call that waited for this reader would never return.
  for (int i = 0; i < kLines; ++i) queue_->write(line + "\n");
  EXPECT_GT(queue_->n_dropped(), kLines / 2);
  queue_->end(std::chrono::milliseconds(1));
  queue_->write(line + "\n");
  const std::string read = read_all();
  EXPECT_EQ(static_cast<std::size_t>(queue_->n_dropped()), kLines + 1 - read.size() / 1000);
}

TEST_F(LineQueueTest, says_how_many_lines_are_missing_when_the_reader_reads_again) {
  static std::int64_t n_told;
  n_told = 0;
  queue_->begin([](std::int64_t n) { n_told += n; });
  const std::string line(999, 'x');
  for (int i = 0; i < 5000; ++i) queue_->write(line + "\n");
  EXPECT_GT(queue_->n_dropped(), 0);
  std::thread reader([&] {
    std::array<char, 4096> piece{};
    for (ssize_t n = 0; (n = ::read(ends_[0], piece.data(), piece.size())) > 0;)
      if (piece[static_cast<std::size_t>(n) - 1] == '.') return;
  });
  queue_->write("more\n");
  queue_->end(kLong);
  queue_->write(".");
  reader.join();
  EXPECT_GT(n_told, 0);
  EXPECT_EQ(n_told, queue_->n_dropped());
}

}  // namespace
}  // namespace baton::log
