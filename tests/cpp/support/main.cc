// The main of every C++ test; `test_engine --help` explains how to run some of its cases.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
