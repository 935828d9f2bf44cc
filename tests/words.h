// What stands in texts. <regex> says as much, and takes seconds to compile.
#ifndef HD_TESTS_WORDS_H
#define HD_TESTS_WORDS_H

#include <cctype>
#include <string>

inline bool IsOfWord(char c)
{
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

inline std::string Replaced(std::string text, const std::string &what,
                            const std::string &by)
{
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos;
         at += by.size())
        text.replace(at, what.size(), by);
    return text;
}

// Where it is not part of a longer word.
inline std::string ReplacedWord(std::string text, const std::string &word,
                                const std::string &by)
{
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;) {
        size_t end = at + word.size();
        bool part = (at > 0 && IsOfWord(text[at - 1])) ||
                    (end < text.size() && IsOfWord(text[end]));

        if (!part)
            text.replace(at, word.size(), by);
        at += part ? 1 : by.size();
    }
    return text;
}

// The digits in front of `words`; "" where there are none.
inline std::string NumberBefore(const std::string &text,
                                const std::string &words)
{
    size_t end = text.find(words), first = end;

    if (end == std::string::npos)
        return "";
    while (first > 0 &&
           std::isdigit(static_cast<unsigned char>(text[first - 1])))
        first--;
    return text.substr(first, end - first);
}

#endif
