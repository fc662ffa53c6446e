// SPDX-License-Identifier: Apache-2.0
#include "output/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "util/text.h"

namespace vramscope::output {
namespace {

class TerminalTest : public testing::Test {
 protected:
  TerminalTest() {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR"})
      unsetenv(name);
    setenv("TERM", "xterm", 1);
  }
};

TEST_F(TerminalTest, Utf8ByTheFirstVariableThatIsSet) {
  EXPECT_FALSE(LocaleIsUtf8());
  setenv("LANG", "en_US.UTF-8", 1);
  EXPECT_TRUE(LocaleIsUtf8());
  setenv("LC_CTYPE", "", 1);
  EXPECT_TRUE(LocaleIsUtf8());
  setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(LocaleIsUtf8());
  setenv("LC_ALL", "de_DE.utf8", 1);
  EXPECT_TRUE(LocaleIsUtf8());
}

TEST_F(TerminalTest, AFileIsNoTerminal) {
  const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const Style style = DetectStyle(fd);
  close(fd);
  EXPECT_EQ(style.columns, 80);
  EXPECT_FALSE(style.colour);
  EXPECT_FALSE(style.wraps);
}

TEST_F(TerminalTest, ATerminalHasAWidthAndColours) {
  int master = -1;
  int slave = -1;
  winsize size{};
  size.ws_col = 101;
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
  EXPECT_EQ(DetectStyle(slave).columns, 101);
  EXPECT_TRUE(DetectStyle(slave).wraps);
  size.ws_col = 200;
  ASSERT_EQ(ioctl(slave, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(DetectStyle(slave).columns, 200);
  EXPECT_TRUE(DetectStyle(slave).colour);
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(DetectStyle(slave).colour);
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(DetectStyle(slave).colour);
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(DetectStyle(slave).colour);
  size.ws_col = 7;
  ioctl(slave, TIOCSWINSZ, &size);
  EXPECT_EQ(DetectStyle(slave).columns, 72);
  close(slave);
  close(master);
}

TEST_F(TerminalTest, PrintableTextDrivesNoTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\nc\td\x7f", true), "a?[2Jb?c d?");
  EXPECT_EQ(Printable("na\xc3\xafve", true), "na\xc3\xafve");
  EXPECT_EQ(Printable("na\xc3\xafve", false), "na?ve");
  EXPECT_EQ(Printable("a\xff\xc3", true), "a??");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J",
                      true),
            "?2J");  // CSI as one C1 character
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b",
                      true),
            "a?b");  // right-to-left override
}

TEST_F(TerminalTest, CutsAtColumns) {
  const Style utf8{.utf8 = true};
  EXPECT_EQ(CutEnd("abcdef", 6, utf8), "abcdef");
  EXPECT_EQ(CutEnd("abcdef", 4, utf8), "abc…");
  EXPECT_EQ(CutEnd("äöüäöü", 4, utf8), "äöü…");
  EXPECT_EQ(CutEnd("abcdef", 4, {}), "ab..");
  EXPECT_EQ(CutEnd("abcdef", 1, {}), ".");
  EXPECT_EQ(CutEnd("abcdef", 0, utf8), "");
  EXPECT_EQ(CutStart("abcdef", 6, utf8), "abcdef");
  EXPECT_EQ(CutStart("abcdef", 4, utf8), "…def");
  EXPECT_EQ(CutStart("äöüäöü", 4, utf8), "…äöü");
  EXPECT_EQ(CutStart("abcdef", 4, {}), "..ef");
  EXPECT_EQ(CutStart("abcdef", 1, {}), ".");
  EXPECT_EQ(CutMiddle("abcdef", 6, utf8), "abcdef");
  EXPECT_EQ(CutMiddle("abcdefghij", 7, utf8), "abcd…ij");
  EXPECT_EQ(CutMiddle("äöüäöüäöü", 6, utf8), "äöü…öü");
  EXPECT_EQ(CutMiddle("abcdefghij", 7, {}), "abc..ij");
  EXPECT_EQ(CutMiddle("abcdefghij", 1, utf8), "…");
  EXPECT_EQ(CutMiddle("abcdefghij", 0, utf8), "");
  // A name of a malicious file: in one go, or it takes hours.
  const std::string endless(size_t{1} << 22, 'x');
  EXPECT_EQ(CutStart(endless + "yz", 3, utf8), "…yz");
  EXPECT_EQ(CutEnd("yz" + endless, endless.size(), utf8), "yz" + endless.substr(3) + "…");
}

TEST_F(TerminalTest, SentencesGoOnBelowOnATerminalAlone) {
  const std::string text = "who greps for a cause finds all of it";
  EXPECT_EQ(Wrapped(text, 0, 2, {.columns = 12}), text);
  const Style narrow{.columns = 12, .utf8 = true, .wraps = true};
  EXPECT_EQ(Wrapped(text, 0, 2, narrow), "who greps\n  for a\n  cause\n  finds all\n  of it");
  EXPECT_EQ(Wrapped(text, 4, 0, narrow), "who\ngreps for a\ncause finds\nall of it");
  EXPECT_EQ(Wrapped("ää öö üü ßß éé", 0, 0, narrow), "ää öö üü ßß\néé");
  // Blanks at the start are an indent; a word without room stays whole.
  EXPECT_EQ(Wrapped("  a/long/path/of/it and more", 0, 4, narrow),
            "  a/long/path/of/it\n    and more");
  EXPECT_EQ(Wrapped("", 0, 4, narrow), "");
  EXPECT_EQ(Wrapped("a ", 12, 40, narrow), "a ");
}

TEST_F(TerminalTest, Bars) {
  const Style utf8{.utf8 = true};
  EXPECT_EQ(Bar(1, 4, utf8), "████");
  EXPECT_EQ(Bar(0.5, 4, utf8), "██  ");
  EXPECT_EQ(Bar(0.28125, 4, utf8), "█▏  ");
  EXPECT_EQ(Bar(0.5, 4, {}), "##  ");
  EXPECT_EQ(Bar(17, 4, {}), "####");
  EXPECT_EQ(Bar(0.0 / 0.0, 4, {}), "    ");
}

TEST_F(TerminalTest, Figures) {
  EXPECT_EQ(InUnit(1023, 1), "1,023");
  EXPECT_EQ(InUnit(0, 1024), "0.0");
  EXPECT_EQ(InUnit(1023, 1024), "1.0");
  EXPECT_EQ(InUnit(1536, 1024), "1.5");
  EXPECT_EQ(InUnit(~uint64_t{0}, 1ull << 20), "17,592,186,044,416.0");
  EXPECT_EQ(Percent(0), "0.0 %");
  EXPECT_EQ(Percent(0.0004), "<0.1 %");
  EXPECT_EQ(Percent(0.5), "50.0 %");
  EXPECT_EQ(ExactPercent(-3, 10'000), "-0.03 %");
  EXPECT_EQ(ExactPercent(1, 0), "-");
  EXPECT_STREQ(TableUnit(0).name, "B");
  EXPECT_STREQ(TableUnit(1023).name, "B");
  EXPECT_STREQ(TableUnit(1024).name, "KiB");
  EXPECT_STREQ(TableUnit(4 << 20).name, "MiB");
}

}  // namespace
}  // namespace vramscope::output
