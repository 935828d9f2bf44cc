// Where a vendor's library is looked for, and what is said if it is not there:
// toy libraries, compiled here, whose one function says which of them it is.
#include "base/library.h"

#include <dlfcn.h>

#include <cstring>
#include <initializer_list>
#include <sys/stat.h>
#include <vector>

#include "base/diag.h"
#include "tests/unit/folder.h"

namespace
{

const char kVariable[] = "HEDDLE_TOY_LIB";

// A variable of the environment, put back afterwards.
class Variable
{
  public:
    Variable(const char *name, const std::string &value) : name_(name)
    {
        const char *old = std::getenv(name);

        was_set_ = old != nullptr;
        old_ = was_set_ ? old : "";
        setenv(name, value.c_str(), 1);
    }
    Variable(const Variable &) = delete;
    Variable &operator=(const Variable &) = delete;
    ~Variable()
    {
        if (was_set_)
            setenv(name_, old_.c_str(), 1);
        else
            unsetenv(name_);
    }

  private:
    const char *name_;
    bool was_set_;
    std::string old_;
};

struct Table {
    int (*value)();
    int (*more)();
};

// Each test has names of its own, as what one has loaded may stay.
class Library : public ::testing::Test
{
  protected:
    Folder folder_;
    hd_diag *diag_ = hd_diag_create();
    hd_library library_ = {};
    Table table_ = {};
    std::string name_ =
        std::string("libtoy_") +
        ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".so";
    std::string second_ = name_ + ".2";
    std::vector<const char *> names_ = {name_.c_str(), second_.c_str(),
                                        nullptr};
    std::vector<const char *> folders_ = {"vendor/a/lib", "vendor/b/lib",
                                          nullptr};
    std::vector<hd_symbol> symbols_ = {{"toy_value", offsetof(Table, value)}};
    bool (*version_)(const void *, char *) = nullptr;
    const char *oldest_ = nullptr;
    hd_status (*check_)(hd_diag *) = nullptr;
    std::string path_; // $PATH while a library is opened

    void TearDown() override
    {
        hd_library_close(&library_);
        EXPECT_EQ(library_.handle, nullptr);
        hd_diag_destroy(diag_);
    }
    // A library at a place in the folder.
    std::string Make(const std::string &at, int value,
                     const std::string &options = "")
    {
        return folder_.Compile("extern \"C\" int toy_value() "
                               "{ return " +
                                   std::to_string(value) + "; }",
                               at, options);
    }
    void MakePython(const std::string &bin)
    {
        Folder::Run("mkdir -p '" + folder_.Path(bin) + "'");
        std::ofstream(folder_.Path(bin + "/python3")) << "#!/bin/sh\n";
        Folder::Run("chmod +x '" + folder_.Path(bin + "/python3") + "'");
    }
    void SetPath(std::initializer_list<const char *> bins)
    {
        path_.clear();
        for (const char *bin : bins)
            path_ += (path_.empty() ? "" : ":") + folder_.Path(bin);
    }
    hd_status Open()
    {
        Variable path("PATH", path_);
        hd_library_info info{};

        info.title = "the toy";
        info.variable = kVariable;
        info.names = names_.data();
        info.folders = folders_.data();
        info.symbol = symbols_.data();
        info.nsymbols = symbols_.size();
        info.version = version_;
        info.oldest = oldest_;
        info.check = check_;
        hd_diag_clear(diag_);
        return hd_library_open(&info, &table_, diag_, &library_);
    }
    std::string Said() const
    {
        return hd_diag_text(diag_);
    }
    int Value() const
    {
        return table_.value != nullptr ? table_.value() : -1;
    }
};

TEST_F(Library, TheVariableNamesTheFile)
{
    Variable variable(kVariable, Make("any name.so", 7));

    ASSERT_EQ(Open(), HD_OK) << Said();
    EXPECT_EQ(Value(), 7);
    EXPECT_EQ(std::string(library_.path), folder_.Path("any name.so"));
}

TEST_F(Library, IfTheVariableIsSetNothingElseIsTried)
{
    Make("lib/python3.11/site-packages/vendor/a/lib/" + name_, 1);
    MakePython("bin");
    SetPath({"bin"});
    Variable variable(kVariable, folder_.Path("missing.so"));

    EXPECT_EQ(Open(), HD_ERROR_UNSUPPORTED);
    EXPECT_EQ(Said().find("heddle: error: the toy is needed, and "
                          "HEDDLE_TOY_LIB is no such library: " +
                          folder_.Path("missing.so")),
              0u)
        << Said();
    EXPECT_EQ(Said().find('\n'), Said().size() - 1) << "one line";
    EXPECT_EQ(table_.value, nullptr);
}

TEST_F(Library, AnEmptyVariableIsNone)
{
    Make("lib/python3.11/site-packages/vendor/a/lib/" + name_, 1);
    MakePython("bin");
    SetPath({"bin"});
    Variable variable(kVariable, "");

    ASSERT_EQ(Open(), HD_OK) << Said();
    EXPECT_EQ(Value(), 1);
}

TEST_F(Library, AFileThatIsNoLibraryIsNamed)
{
    Variable variable(kVariable, folder_.Path("text.so"));

    std::ofstream(folder_.Path("text.so")) << "no library";
    EXPECT_EQ(Open(), HD_ERROR_UNSUPPORTED);
    EXPECT_NE(Said().find(folder_.Path("text.so")), std::string::npos);
    EXPECT_EQ(Said().find('\n'), Said().size() - 1) << "one line";
}

TEST_F(Library, APipeIsNotWaitedFor)
{
    Variable variable(kVariable, folder_.Path("pipe.so"));

    ASSERT_EQ(mkfifo(folder_.Path("pipe.so").c_str(), 0600), 0);
    EXPECT_EQ(Open(), HD_ERROR_UNSUPPORTED);
    EXPECT_NE(Said().find("pipe.so is no regular file"), std::string::npos)
        << Said();
}

TEST_F(Library, WhatTheProcessHasLoadedGoesAheadOfAll)
{
    std::string loaded = Make("loaded/" + name_, 1, "-Wl,-soname," + name_);
    Variable variable(kVariable, Make("other.so", 2));
    void *handle = dlopen(loaded.c_str(), RTLD_NOW | RTLD_LOCAL);

    ASSERT_NE(handle, nullptr) << dlerror();
    ASSERT_EQ(Open(), HD_OK) << Said();
    EXPECT_EQ(Value(), 1);
    EXPECT_EQ(std::string(library_.path), loaded);
    dlclose(handle);
    EXPECT_EQ(Value(), 1) << "it is held";
}

TEST_F(Library, PackagesOfThePythonOnPathAreSearched)
{
    Make("venv/lib/python3.12/site-packages/vendor/b/lib/" + second_, 3);
    MakePython("venv/bin");
    SetPath({"nowhere", "venv/bin"});

    ASSERT_EQ(Open(), HD_OK) << Said();
    EXPECT_EQ(Value(), 3);
}

TEST_F(Library, PathWithoutAPythonIsPassedOver)
{
    Make("venv/lib/python3.12/site-packages/vendor/a/lib/" + name_, 3);
    Folder::Run("mkdir '" + folder_.Path("venv/bin") + "'");
    SetPath({"venv/bin"});

    EXPECT_EQ(Open(), HD_ERROR_UNSUPPORTED);
}

// The first folder, then the first name, of the first python3.
TEST_F(Library, BetterPlacesGoFirst)
{
    const std::string packages = "/lib/python3.11/site-packages/vendor/";

    Make("p" + packages + "a/lib/" + second_, 1);
    Make("p" + packages + "b/lib/" + name_, 2);
    Make("q" + packages + "a/lib/" + name_, 3);
    MakePython("p/bin");
    MakePython("q/bin");
    SetPath({"p/bin", "q/bin"});
    ASSERT_EQ(Open(), HD_OK) << Said();
    EXPECT_EQ(Value(), 1);
    hd_library_close(&library_);
    SetPath({"q/bin", "p/bin"});
    ASSERT_EQ(Open(), HD_OK) << Said();
    EXPECT_EQ(Value(), 3);
}

// One that glibc brings along, and no program has loaded.
TEST_F(Library, TheLoadersOwnPlacesComeLast)
{
    const char *system = "libBrokenLocale.so.1";

    if (dlopen(system, RTLD_NOW | RTLD_NOLOAD) != nullptr)
        GTEST_SKIP() << system << " is loaded";
    names_ = {name_.c_str(), system, nullptr};
    Make("lib/python3.11/site-packages/vendor/a/lib/" + name_, 4);
    MakePython("bin");
    SetPath({"bin"});
    ASSERT_EQ(Open(), HD_OK) << Said();
    EXPECT_EQ(Value(), 4);
    hd_library_close(&library_);
    SetPath({});
    symbols_.clear();
    ASSERT_EQ(Open(), HD_OK) << Said();
    EXPECT_NE(std::strstr(library_.path, system), nullptr) << library_.path;
    EXPECT_EQ(library_.path[0], '/');
}

TEST_F(Library, WhereThereIsNoneTheFirstNameIsSaid)
{
    EXPECT_EQ(Open(), HD_ERROR_UNSUPPORTED);
    EXPECT_EQ(Said(), "heddle: error: the toy is needed, and neither python3's "
                      "packages nor the system's libraries hold " +
                          name_ + "; HEDDLE_TOY_LIB may name the file\n");
}

TEST_F(Library, ASymbolThatIsMissingIsNamed)
{
    std::string at = Make("old.so", 5);
    Variable variable(kVariable, at);

    symbols_.push_back({"toy_more", offsetof(Table, more)});
    EXPECT_EQ(Open(), HD_ERROR_UNSUPPORTED);
    EXPECT_EQ(Said(), "heddle: error: the toy at " + at +
                          " is too old: it has no toy_more\n");
    EXPECT_EQ(library_.handle, nullptr);
}

// The toy's value is its version.
bool TellVersion(const void *table, char *out)
{
    int value = static_cast<const Table *>(table)->value();

    snprintf(out, HD_LIBRARY_VERSION, "%d.%d", value / 10, value % 10);
    return value > 0;
}

TEST_F(Library, OneThatIsTooOldIsNamedWithWhatIsNeeded)
{
    std::string at = Make("younger.so", 98);
    Variable variable(kVariable, at);

    version_ = TellVersion;
    for (const char *oldest : {"9.8", "9.7", "8.99", "9", "2.0.1"}) {
        oldest_ = oldest;
        EXPECT_EQ(Open(), HD_OK) << Said();
        EXPECT_STREQ(library_.version, "9.8");
        hd_library_close(&library_);
    }
    for (const char *oldest : {"9.9", "9.10", "10.0", "9.8.1"}) {
        oldest_ = oldest;
        EXPECT_EQ(Open(), HD_ERROR_UNSUPPORTED);
        EXPECT_EQ(Said(), "heddle: error: the toy at " + at +
                              " is too old: it is 9.8, and " + oldest +
                              " or newer is needed\n");
        EXPECT_EQ(library_.handle, nullptr);
        EXPECT_EQ(std::string(library_.path), at);
    }
}

TEST_F(Library, OneThatDoesNotTellItsVersionIsRefused)
{
    std::string at = Make("silent.so", 0);
    Variable variable(kVariable, at);

    version_ = TellVersion;
    EXPECT_EQ(Open(), HD_ERROR_SYSTEM);
    EXPECT_EQ(Said(), "heddle: error: the toy at " + at +
                          " does not tell its version\n");
    EXPECT_EQ(library_.handle, nullptr);
}

TEST_F(Library, WhatMayNotBeOpenedIsNotLookedFor)
{
    Variable variable(kVariable, Make("forbidden.so", 3));

    check_ = [](hd_diag *diag) {
        return hd_fail(diag, HD_ERROR_UNSUPPORTED, "not today");
    };
    EXPECT_EQ(Open(), HD_ERROR_UNSUPPORTED);
    EXPECT_EQ(Said(), "heddle: error: not today\n");
    EXPECT_EQ(dlopen(getenv(kVariable), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

// Its C++ runtime would lose what it has allocated.
TEST_F(Library, OneThatIsClosedStaysInTheProcess)
{
    Variable variable(kVariable, Make("stays.so", 6));

    ASSERT_EQ(Open(), HD_OK) << Said();
    hd_library_close(&library_);
    EXPECT_EQ(Value(), 6);
}

TEST_F(Library, MayBeClosedUnopenedAndTwice)
{
    hd_library_close(&library_);
    hd_library_close(&library_);
}

} // namespace
