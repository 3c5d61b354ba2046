"""Tests of the contract: pure values, no store."""
