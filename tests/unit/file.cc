// Outputs: what mode they get, where a link takes them, and what is left of
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/unit/folder.h"
extern "C" {
#include "tools/file.h"
}

// What the system says to fchown, where a test wants it to refuse.
static bool refuse_fchown;

extern "C" int fchown(int fd, uid_t owner, gid_t group)
{
    if (!refuse_fchown)
        return fchownat(fd, "", owner, group, AT_EMPTY_PATH);
    errno = EPERM;
    return -1;
}

// Without /proc, as without files that have no name, these have one.
static bool hide_proc;

extern "C" int access(const char *path, int mode)
{
    if (!hide_proc || strncmp(path, "/proc/", 6) != 0)
        return faccessat(AT_FDCWD, path, mode, 0);
    errno = ENOENT;
    return -1;
}

namespace
{

constexpr uid_t kOther = 65534;

void Put(const std::string &path, const std::string &text)
{
    std::ofstream(path) << text;
}

std::string Get(const std::string &path)
{
    std::stringstream text;

    text << std::ifstream(path).rdbuf();
    return text.str();
}

outcome Write(const std::string &path, const char *text = "new")
{
    sink out;
    outcome result = sink_open(path.c_str(), &out);

    if (result == FINE)
        result = sink_write(&out, text, strlen(text));
    if (result == FINE)
        result = sink_commit(&out);
    sink_discard(&out);
    return result;
}

mode_t ModeOf(const std::string &path)
{
    struct stat info = {};

    EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
}

class Files : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        mask_ = umask(022);
    }
    void TearDown() override
    {
        umask(mask_);
    }
    // A file of this mode, and of another user if `other`.
    std::string Make(mode_t mode, bool other = false)
    {
        std::string path = folder_.Path("out");

        Put(path, "old");
        EXPECT_EQ(other ? chown(path.c_str(), kOther, kOther) : 0, 0);
        EXPECT_EQ(chmod(path.c_str(), mode), 0);
        return path;
    }
    Folder folder_;

  private:
    mode_t mask_ = 0;
};

TEST_F(Files, ANewOneHasTheModeThatTheMaskLeaves)
{
    EXPECT_EQ(Write(folder_.Path("out")), FINE);
    EXPECT_EQ(ModeOf(folder_.Path("out")), 0644u);
}

TEST_F(Files, OursKeepsItsPermissions)
{
    std::string path = Make(0751);

    EXPECT_EQ(Write(path), FINE);
    EXPECT_EQ(ModeOf(path), 0751u);
}

TEST_F(Files, WhatAGroupMayDoIsNotGivenToAnotherGroup)
{
    std::string path = Make(0775);

    refuse_fchown = true;
    EXPECT_EQ(Write(path), FINE);
    refuse_fchown = false;
    EXPECT_EQ(ModeOf(path), 0705u);
}

TEST_F(Files, NoBitThatLendsAnIdentityIsKept)
{
    for (mode_t bit : {04000u, 02000u, 06000u, 01000u}) {
        std::string path = Make(0755 | bit);

        if (ModeOf(path) != (0755 | bit))
            continue; // the system does not let us set it
        EXPECT_EQ(Write(path), FINE);
        EXPECT_EQ(ModeOf(path), 0755u) << std::oct << bit;
    }
}

TEST_F(Files, AnothersFileLendsNoMode)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root makes a file that is another user's";
    for (mode_t mode : {04755u, 06777u, 0777u, 0600u}) {
        std::string path = Make(mode, true);
        struct stat info = {};

        EXPECT_EQ(Write(path), FINE);
        EXPECT_EQ(ModeOf(path), 0644u) << std::oct << mode;
        EXPECT_EQ(stat(path.c_str(), &info), 0);
        EXPECT_EQ(info.st_uid, geteuid());
        EXPECT_EQ(Get(path), "new");
    }
}

TEST_F(Files, AGroupKeepsItsOwn)
{
    std::string path = Make(0660);
    struct stat info = {};

    if (chown(path.c_str(), static_cast<uid_t>(-1), kOther) != 0)
        GTEST_SKIP() << "only root gives a file to a group that is not its own";
    EXPECT_EQ(Write(path), FINE);
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_gid, kOther);
    EXPECT_EQ(info.st_mode & 07777, 0660u);
}

TEST_F(Files, ALinkThatDanglesLeadsToItsFile)
{
    std::string link = folder_.Path("link");

    ASSERT_EQ(symlink("second", link.c_str()), 0);
    ASSERT_EQ(symlink("./there", folder_.Path("second").c_str()), 0);
    EXPECT_EQ(file_writable(link.c_str()), FINE);
    EXPECT_EQ(Write(link), FINE);
    EXPECT_EQ(Get(folder_.Path("there")), "new");
    char target[16] = "";
    EXPECT_EQ(readlink(link.c_str(), target, sizeof target - 1), 6);
    EXPECT_STREQ(target, "second");
}

TEST_F(Files, ALinkToNowhereOrToItselfIsRefused)
{
    std::string link = folder_.Path("link"), loop = folder_.Path("loop");

    ASSERT_EQ(symlink("no/there", link.c_str()), 0);
    ASSERT_EQ(symlink("loop", loop.c_str()), 0);
    testing::internal::CaptureStderr();
    EXPECT_EQ(file_writable(link.c_str()), WRONG);
    EXPECT_EQ(Write(link), WRONG);
    EXPECT_EQ(Write(loop), WRONG);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "heddle: cannot write " + link +
                  ": No such file or directory\n"
                  "heddle: cannot write " +
                  link +
                  ": No such file or directory\n"
                  "heddle: cannot write " +
                  loop + ": Too many levels of symbolic links\n");
}

TEST_F(Files, SomebodyElsesLinkIsFollowedOnlyWhereTheKernelDoes)
{
    std::string open = folder_.Path("open");
    std::string link = open + "/link", mine = folder_.Path("mine");
    int guarded = 0;

    std::ifstream("/proc/sys/fs/protected_symlinks") >> guarded;
    if (geteuid() != 0 || guarded == 0)
        GTEST_SKIP() << "needs root, and fs.protected_symlinks";
    Put(mine, "old");
    ASSERT_EQ(mkdir(open.c_str(), 0777), 0);
    ASSERT_EQ(chmod(open.c_str(), 01777), 0);
    ASSERT_EQ(symlink(mine.c_str(), link.c_str()), 0);
    ASSERT_EQ(lchown(link.c_str(), kOther, kOther), 0);
    EXPECT_EQ(Write(link), WRONG);
    EXPECT_EQ(Get(mine), "old");
}

TEST_F(Files, ANameThatCannotBeOneOfAFileIsRefused)
{
    testing::internal::CaptureStderr();
    EXPECT_EQ(file_writable(""), WRONG);
    EXPECT_EQ(Write(""), WRONG);
    EXPECT_EQ(Write(folder_.Path("new/")), WRONG);
    EXPECT_EQ(Write(folder_.Path(".")), WRONG);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "heddle: cannot write '': a file has a name\n"
              "heddle: cannot write '': a file has a name\n"
              "heddle: cannot write " +
                  folder_.Path("new/") +
                  ": Is a directory\n"
                  "heddle: cannot write " +
                  folder_.Path(".") + ": Is a directory\n");
}

// What is in the folder, sorted.
std::vector<std::string> NamesIn(const std::string &folder)
{
    std::vector<std::string> names;

    for (const auto &entry : std::filesystem::directory_iterator(folder))
        names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

// Of a command that ends within its output, by a signal or by itself.
void EndWithin(const std::string &path, int signal)
{
    pid_t child = fork();
    int how = 0;

    if (child == 0) {
        sink out;

        if (sink_open(path.c_str(), &out) != FINE ||
            sink_write(&out, "new", 3) != FINE)
            _exit(FINE);
        raise(signal);
        _exit(FAILED);
    }
    EXPECT_EQ(waitpid(child, &how, 0), child);
    EXPECT_TRUE(signal == 0 ? WIFEXITED(how) && WEXITSTATUS(how) == FAILED
                            : WIFSIGNALED(how) && WTERMSIG(how) == signal);
}

TEST_F(Files, NothingIsLeftOfACommandThatEndsWithinOne)
{
    int fd = open(folder_.Path("").c_str(), O_TMPFILE | O_WRONLY, 0600);

    if (fd < 0)
        GTEST_SKIP() << "files have names here";
    close(fd);
    for (int signal : {0, SIGINT, SIGTERM, SIGKILL}) {
        EndWithin(folder_.Path("out"), signal);
        EXPECT_EQ(NamesIn(folder_.Path("")), std::vector<std::string>());
    }
    Make(0644);
    for (int signal : {0, SIGINT, SIGTERM, SIGKILL}) {
        EndWithin(folder_.Path("out"), signal);
        EXPECT_EQ(NamesIn(folder_.Path("")), std::vector<std::string>{"out"});
        EXPECT_EQ(Get(folder_.Path("out")), "old");
    }
}

// Written, discarded and refused, with and without files that have no name.
TEST_F(Files, NothingIsLeftBesideOne)
{
    for (bool named : {false, true}) {
        std::string path = folder_.Path("out");
        sink out;

        hide_proc = named;
        EXPECT_EQ(Write(path, "first"), FINE);
        EXPECT_EQ(Write(path, "second"), FINE);
        EXPECT_EQ(Get(path), "second");
        EXPECT_EQ(sink_open(path.c_str(), &out), FINE);
        EXPECT_EQ(out.named, named);
        sink_discard(&out);
        EXPECT_EQ(NamesIn(folder_.Path("")), std::vector<std::string>{"out"});

        EXPECT_EQ(unlink(path.c_str()), 0);
        EXPECT_EQ(sink_open(path.c_str(), &out), FINE);
        EXPECT_EQ(mkdir(path.c_str(), 0755), 0); // which no file replaces
        testing::internal::CaptureStderr();
        EXPECT_EQ(sink_commit(&out), WRONG);
        EXPECT_EQ(testing::internal::GetCapturedStderr(),
                  "heddle: cannot write " + path + ": Is a directory\n");
        sink_discard(&out);
        EXPECT_EQ(NamesIn(folder_.Path("")), std::vector<std::string>{"out"});
        EXPECT_EQ(rmdir(path.c_str()), 0);
    }
    hide_proc = false;
}

} // namespace
