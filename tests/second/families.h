// Pairs of programs that are alike but for one small thing, in families of what
// a proof of values could get wrong: who counts, what a mask leaves, what is
// said of one size of runs alone. A pair is drawn, and one thing of it may then
// be changed.
#ifndef HD_TESTS_SECOND_FAMILIES_H
#define HD_TESTS_SECOND_FAMILIES_H

#include <random>
#include <string>
#include <vector>

namespace second
{

// What a pair is made of. Each choice is drawn once; those that say what is
// computed can be changed afterwards.
class Choices
{
  public:
    explicit Choices(unsigned seed) : random_(seed)
    {
    }
    // What both programs have.
    int Fix(int n)
    {
        return Pick(&fixed_, n, true);
    }
    // What is computed.
    int Edit(int n)
    {
        return Pick(&edited_, n, true);
    }
    // What the host program gets wrong: 0 until it is changed.
    int Slip(int n)
    {
        return Pick(&edited_, n, false);
    }
    // What is written otherwise and computes the same.
    int Spell(int n)
    {
        return Pick(&spelt_, n, true);
    }
    // From the first choice again, the same ones.
    void Rewind();
    // Another value of one that Edit or Slip has picked; false if there are
    // none.
    bool Change();
    void Respell();

  private:
    struct Kind {
        std::vector<int> value, of; // of how many
        size_t next = 0;
    };
    int Pick(Kind *kind, int n, bool drawn);

    std::mt19937 random_;
    Kind fixed_, edited_, spelt_;
};

struct Pair {
    std::string tensor;
    std::string host; // empty: what lowering makes of the tensor program
};

struct Family {
    const char *name;
    Pair (*write)(Choices *choices);
    // A word that generated programs of this family have; or none are taken.
    const char *generated;
};

extern const std::vector<Family> kFamilies;

} // namespace second

#endif
