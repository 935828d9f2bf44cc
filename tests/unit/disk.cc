// What is kept on disk: whole or not at all, whatever becomes of the files.
#include <gtest/gtest.h>

#include <csignal>
#include <fcntl.h>
#include <linux/capability.h>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <vector>

#include "base/disk.h"
#include "tests/unit/folder.h"

namespace
{

typedef std::vector<char> Bytes;

Bytes RandomBytes(size_t n, unsigned seed)
{
    std::mt19937 random(seed);
    Bytes bytes(n);

    for (char &c : bytes)
        c = char(random());
    return bytes;
}

std::string NameOf(int i)
{
    char name[64];

    snprintf(name, sizeof(name), "%032x.heddle", i + 1);
    return name;
}

class Cache : public testing::Test
{
  protected:
    Folder top_;
    std::string folder_ = top_.Path("cache");
    hd_disk cache_{};

    void SetUp() override
    {
        alarm(60); // a pipe that is read never ends
        Open(folder_);
    }
    void TearDown() override
    {
        alarm(0);
        setenv("HEDDLE_CACHE_DIR", "off", 1);
    }
    void Open(const std::string &folder)
    {
        setenv("HEDDLE_CACHE_DIR", folder.c_str(), 1);
        hd_disk_open(&cache_);
    }
    void Write(const std::string &key, const Bytes &payload) const
    {
        hd_text text{};

        hd_text_puts(&text, key.c_str());
        hd_disk_write(&cache_, &text, payload.data(), payload.size());
        hd_text_free(&text);
    }
    bool Read(const std::string &key, Bytes *out = nullptr) const
    {
        hd_text text{};
        void *payload = nullptr;
        size_t bytes = 0;

        hd_text_puts(&text, key.c_str());
        bool found = hd_disk_read(&cache_, &text, &payload, &bytes);
        if (found && out != nullptr)
            out->assign(static_cast<char *>(payload),
                        static_cast<char *>(payload) + bytes);
        free(payload);
        hd_text_free(&text);
        return found;
    }
    bool Keeps(const std::string &key) const
    {
        Bytes payload = RandomBytes(100, 5), back;

        Write(key, payload);
        return Read(key, &back) && back == payload;
    }
    hd_disk_survey Look() const
    {
        hd_disk_survey found;

        hd_disk_look(&cache_, &found);
        return found;
    }
    // Writes `letter`s and reads what others wrote; false if those were mixed.
    bool TakesTurns(char letter, int nkeys) const
    {
        Bytes payload(40000, letter), back;

        for (int n = 0; n < 300; n++) {
            std::string key = "key " + std::to_string(n % nkeys);

            Write(key, payload);
            if (Read(key, &back) && back != Bytes(40000, back[0]))
                return false;
        }
        return true;
    }
    // The one entry's file.
    std::string File() const
    {
        std::string found;
        FILE *list = popen(("ls -A '" + folder_ + "'").c_str(), "r");
        char name[256];

        while (list != nullptr && fscanf(list, "%255s", name) == 1)
            found = folder_ + "/" + name;
        pclose(list);
        return found;
    }
    static Bytes Load(const std::string &path)
    {
        std::ifstream file(path, std::ios::binary);

        return Bytes(std::istreambuf_iterator<char>(file),
                     std::istreambuf_iterator<char>());
    }
    static void Store(const std::string &path, const Bytes &bytes)
    {
        std::ofstream(path, std::ios::binary)
            .write(bytes.data(), std::streamsize(bytes.size()));
    }
    // A file of so many bytes that takes no room, last changed `age` seconds
    // ago.
    static void Pretend(const std::string &path, off_t bytes, time_t age)
    {
        timespec times[2] = {{time(nullptr) - age, 0},
                             {time(nullptr) - age, 0}};
        int fd = open(path.c_str(), O_WRONLY | O_CREAT, 0600);

        EXPECT_EQ(ftruncate(fd, bytes), 0);
        EXPECT_EQ(futimens(fd, times), 0);
        close(fd);
    }
    static bool Exists(const std::string &path)
    {
        return access(path.c_str(), F_OK) == 0;
    }
};

TEST_F(Cache, WhatIsKeptIsReadAgain)
{
    for (size_t n : {size_t(0), size_t(1), size_t(72), size_t(300000)}) {
        std::string key = "key " + std::to_string(n);
        Bytes payload = RandomBytes(n, unsigned(n)), back;

        EXPECT_FALSE(Read(key));
        Write(key, payload);
        ASSERT_TRUE(Read(key, &back)) << n;
        EXPECT_EQ(back, payload);
        EXPECT_FALSE(Read(key + " "));
    }
    EXPECT_EQ(Look().entries, 4);
    Write("key 1", RandomBytes(50, 9)); // in the place of the other
    EXPECT_EQ(Look().entries, 4);
    Bytes back;
    ASSERT_TRUE(Read("key 1", &back));
    EXPECT_EQ(back, RandomBytes(50, 9));
}

TEST_F(Cache, FolderIsMadeForItsUserAlone)
{
    struct stat about {
    };

    Open(folder_ + "/a/b");
    ASSERT_TRUE(Keeps("key"));
    for (const char *name : {"", "/a", "/a/b"}) {
        ASSERT_EQ(stat((folder_ + name).c_str(), &about), 0);
        EXPECT_EQ(about.st_mode & 0777, 0700u) << name;
    }
    folder_ += "/a/b";
    ASSERT_EQ(stat(File().c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u);
}

TEST_F(Cache, FolderIsFoundByTheEnvironment)
{
    std::string home = getenv("HOME") != nullptr ? getenv("HOME") : "";
    std::string user =
        getenv("XDG_CACHE_HOME") != nullptr ? getenv("XDG_CACHE_HOME") : "";
    auto folder = [this] {
        hd_disk_open(&cache_);
        return std::string(cache_.folder);
    };

    setenv("HOME", "/home/of", 1);
    setenv("XDG_CACHE_HOME", "/caches", 1);
    EXPECT_EQ(folder(), folder_);
    setenv("HEDDLE_CACHE_DIR", "off", 1);
    EXPECT_EQ(folder(), "");
    setenv("HEDDLE_CACHE_DIR", "", 1);
    EXPECT_EQ(folder(), "/caches/heddle");
    setenv("XDG_CACHE_HOME", "relative", 1); // which its specification ignores
    EXPECT_EQ(folder(), "/home/of/.cache/heddle");
    unsetenv("HEDDLE_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    EXPECT_EQ(folder(), "/home/of/.cache/heddle");
    unsetenv("HOME");
    EXPECT_EQ(folder(), "");
    EXPECT_NE(std::string(Look().reason).find("HOME"), std::string::npos);
    Open("/" + std::string(5000, 'x'));
    EXPECT_STREQ(cache_.folder, "");
    setenv("HOME", home.c_str(), 1);
    if (!user.empty())
        setenv("XDG_CACHE_HOME", user.c_str(), 1);
}

TEST_F(Cache, FilesOfPeopleLieBesideEntriesAsTheyAre)
{
    hd_disk inner = cache_;
    void *bytes = nullptr;
    size_t n = 0;
    int64_t seconds = 0;

    hd_disk_enter(&inner, "machines");
    EXPECT_FALSE(hd_disk_has(&inner, "a-"));
    EXPECT_FALSE(hd_disk_load(&inner, "a-1.json", &bytes, &n, &seconds));
    ASSERT_TRUE(hd_disk_store(&inner, "a-1.json", "{}", 2));
    EXPECT_TRUE(hd_disk_has(&inner, "a-"));
    EXPECT_FALSE(hd_disk_has(&inner, "b-"));
    EXPECT_EQ(Load(folder_ + "/machines/a-1.json"), (Bytes{'{', '}'}));
    ASSERT_TRUE(hd_disk_load(&inner, "a-1.json", &bytes, &n, &seconds));
    EXPECT_EQ(std::string(static_cast<char *>(bytes), n), "{}");
    EXPECT_NEAR(double(seconds), double(time(nullptr)), 100);
    free(bytes);
    EXPECT_EQ(Look().entries, 0);
    // Nobody's but ours.
    chmod((folder_ + "/machines").c_str(), 0777);
    EXPECT_FALSE(hd_disk_load(&inner, "a-1.json", &bytes, &n, &seconds));
    EXPECT_FALSE(hd_disk_store(&inner, "a-1.json", "{}", 2));
    EXPECT_EQ(errno, EPERM);
    setenv("HEDDLE_CACHE_DIR", "off", 1);
    hd_disk_open(&inner);
    hd_disk_enter(&inner, "machines");
    EXPECT_STREQ(inner.folder, "");
}

TEST_F(Cache, FlippedBitIsAMiss)
{
    ASSERT_TRUE(Keeps("key"));
    std::string path = File();
    Bytes whole = Load(path);

    for (size_t i = 0; i < whole.size(); i++) {
        Bytes damaged = whole;

        damaged[i] = char(damaged[i] ^ (1 << i % 8));
        Store(path, damaged);
        EXPECT_FALSE(Read("key")) << "byte " << i;
    }
    Store(path, whole);
    EXPECT_TRUE(Read("key"));
}

TEST_F(Cache, TornFileIsAMissAndWrittenAnew)
{
    ASSERT_TRUE(Keeps("key"));
    std::string path = File();
    Bytes whole = Load(path);

    for (size_t n = 0; n < whole.size(); n++) {
        Store(path, Bytes(whole.begin(), whole.begin() + long(n)));
        EXPECT_FALSE(Read("key")) << n << " bytes";
    }
    whole.push_back(0);
    Store(path, whole);
    EXPECT_FALSE(Read("key"));
    EXPECT_TRUE(Keeps("key"));
}

TEST_F(Cache, AnotherKeyOfTheSameHashIsAMiss)
{
    ASSERT_TRUE(Keeps("one key"));
    std::string one = File();
    Bytes entry = Load(one);
    unlink(one.c_str());
    ASSERT_TRUE(Keeps("two key"));
    Store(File(), entry);
    EXPECT_FALSE(Read("two key"));
}

TEST_F(Cache, NothingButAFileIsRead)
{
    ASSERT_TRUE(Keeps("key"));
    std::string path = File(), aside = top_.Path("aside");

    ASSERT_EQ(rename(path.c_str(), aside.c_str()), 0);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_FALSE(Read("key"));
    EXPECT_TRUE(Keeps("key")); // in its place
    unlink(path.c_str());
    ASSERT_EQ(symlink(aside.c_str(), path.c_str()), 0);
    EXPECT_FALSE(Read("key"));
    EXPECT_TRUE(Keeps("key"));
    unlink(path.c_str());
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    EXPECT_FALSE(Keeps("key"));
    EXPECT_EQ(Look().entries, 0); // nor is a part left
}

TEST_F(Cache, EntryThatIsTooLargeIsNeitherReadNorWritten)
{
    ASSERT_TRUE(Keeps("key"));
    ASSERT_EQ(truncate(File().c_str(), off_t(HD_CACHE_ENTRY) + 1), 0);
    EXPECT_FALSE(Read("key"));
    unlink(File().c_str());
    Write("key", Bytes(HD_CACHE_ENTRY, 'x'));
    EXPECT_EQ(Look().entries, 0);
}

TEST_F(Cache, FolderThatOthersMayWriteToKeepsNothing)
{
    ASSERT_TRUE(Keeps("key"));
    for (mode_t mode : {0777, 0720, 0702}) {
        ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
        EXPECT_FALSE(Read("key"));
        EXPECT_FALSE(Keeps("other"));
        EXPECT_NE(std::string(Look().reason).find("others may write"),
                  std::string::npos);
    }
    ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
    EXPECT_TRUE(Read("key"));
    EXPECT_STREQ(Look().reason, "");
}

TEST_F(Cache, FolderAndFilesOfAnotherUserKeepNothing)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can give files away";
    ASSERT_TRUE(Keeps("key"));
    ASSERT_EQ(chown(File().c_str(), 65534, 65534), 0);
    EXPECT_FALSE(Read("key"));
    EXPECT_TRUE(Keeps("key"));
    ASSERT_EQ(chown(folder_.c_str(), 65534, 65534), 0);
    EXPECT_FALSE(Read("key"));
    EXPECT_FALSE(Keeps("other"));
}

TEST_F(Cache, FolderThatCannotBeMadeKeepsNothing)
{
    Store(top_.Path("file"), RandomBytes(10, 1));
    ASSERT_EQ(mkfifo(top_.Path("pipe").c_str(), 0600), 0);
    for (std::string folder :
         {top_.Path("file"), top_.Path("file") + "/below", top_.Path("pipe"),
          std::string("/dev/null"), std::string("/proc/heddle/cache")}) {
        Open(folder);
        EXPECT_FALSE(Keeps("key")) << folder;
    }
    Open(top_.Path("file"));
    EXPECT_STREQ(Look().reason, "Not a directory");
    Open("off");
    EXPECT_FALSE(Keeps("key"));
    EXPECT_STREQ(Look().reason, "HEDDLE_CACHE_DIR is 'off'");
}

// Root may write anywhere, unless it gives up its capabilities. Another user
// might not even reach the folder, below a root folder that is closed to it.
TEST_F(Cache, FolderThatIsReadOnlyIsReadAlone)
{
    ASSERT_TRUE(Keeps("key"));
    Folder::Run("chmod 0500 '" + folder_ + "'");
    pid_t child = fork();
    if (child == 0) {
        __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
        bool fine = syscall(SYS_capset, &header, none) == 0;

        fine = fine && Read("key") && !Keeps("other") &&
               strcmp(Look().reason, "Permission denied") == 0;
        Open(folder_ + "/a/b");
        fine = fine &&
               strcmp(Look().reason, "it is not there and cannot be made") == 0;
        _exit(fine ? 0 : 1);
    }
    int how = 0;
    waitpid(child, &how, 0);
    EXPECT_EQ(how, 0);
    Folder::Run("chmod 0700 '" + folder_ + "'");
}

TEST_F(Cache, FullDiskLeavesNoPart)
{
    ASSERT_TRUE(Keeps("key"));
    pid_t child = fork();
    if (child == 0) {
        rlimit most = {64, 64};

        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &most) != 0)
            _exit(2);
        Write("other", RandomBytes(1000, 3));
        _exit(Read("other") || !Read("key") || Look().entries != 1);
    }
    int how = 0;
    waitpid(child, &how, 0);
    EXPECT_EQ(how, 0);
}

TEST_F(Cache, OldestEntriesGoBeyondTheLimit)
{
    const int n = 10;
    const off_t bytes = 30 << 20;
    std::string part = folder_ + "/" + NameOf(99) + ".1.2.3";
    std::string notes = folder_ + "/notes.heddle";

    ASSERT_TRUE(Keeps("key"));
    std::string read = File();
    Pretend(read, off_t(Load(read).size()), 9000);
    for (int i = 0; i < n; i++)
        Pretend(folder_ + "/" + NameOf(i), bytes, 100 * (n - i));
    Pretend(part, bytes, 5000);   // whose writer died
    Pretend(notes, bytes, 10000); // the user's own
    ASSERT_TRUE(Read("key"));     // now it is the newest
    ASSERT_TRUE(Keeps("other"));
    EXPECT_LE(Look().bytes, int64_t(HD_CACHE_TOTAL) / 4 * 3);
    EXPECT_GT(Look().bytes, int64_t(HD_CACHE_TOTAL) / 2);
    EXPECT_FALSE(Exists(part));
    EXPECT_FALSE(Exists(folder_ + "/" + NameOf(0)));
    EXPECT_TRUE(Exists(folder_ + "/" + NameOf(n - 1)));
    EXPECT_TRUE(Exists(notes));
    EXPECT_TRUE(Read("key"));
    EXPECT_TRUE(Read("other"));
}

// Processes write and read the same keys; some are killed on the way. What is
// read is what one of them wrote, whole.
TEST_F(Cache, ProcessesShareItWithoutALock)
{
    std::vector<pid_t> children;
    const int nkeys = 3;

    for (int i = 0; i < 6; i++) {
        pid_t child = fork();

        if (child == 0)
            _exit(TakesTurns(char('a' + i), nkeys) ? 0 : 1);
        children.push_back(child);
    }
    for (int i = 0; i < 3; i++) {
        usleep(5000);
        kill(children[size_t(i)], SIGKILL);
    }
    for (size_t i = 0; i < children.size(); i++) {
        int how = 0;

        waitpid(children[i], &how, 0);
        EXPECT_TRUE(WIFSIGNALED(how) || WEXITSTATUS(how) == 0) << i;
    }
    for (int k = 0; k < nkeys; k++) {
        Bytes back;

        ASSERT_TRUE(Read("key " + std::to_string(k), &back));
        EXPECT_EQ(back, Bytes(40000, back[0]));
    }
    EXPECT_LE(Look().entries, nkeys + 3);
}

} // namespace
