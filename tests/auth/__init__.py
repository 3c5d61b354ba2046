"""Tests of who somebody is, and what he may do."""
