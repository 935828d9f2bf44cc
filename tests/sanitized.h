// Whether a sanitizer has taken malloc's place: HD_TEST_SANITIZED is defined.
#ifndef HD_TESTS_SANITIZED_H
#define HD_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HD_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HD_TEST_SANITIZED 1
#endif
#endif

#endif
