"""Tests of `pushup.testing`, which applications use in theirs."""
